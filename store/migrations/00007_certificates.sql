-- +goose Up
-- One row for each release that wiped, and of no machine's or workflow's life: what was erased must be told when both are gone.
CREATE TABLE certificates (
    workflow_id TEXT PRIMARY KEY,
    machine_id  TEXT NOT NULL,
    machine     TEXT NOT NULL, -- its name then
    serial      TEXT NOT NULL,
    issued      INTEGER NOT NULL,
    doc         TEXT NOT NULL
);
CREATE INDEX certificates_issued ON certificates (issued);
