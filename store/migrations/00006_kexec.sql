-- +goose Up
-- One row for each deploy that tried kexec, by the key of its step.
CREATE TABLE kexec_trials (
    attempt TEXT PRIMARY KEY,
    make    TEXT NOT NULL,
    at      INTEGER NOT NULL,
    doc     TEXT NOT NULL
);
CREATE INDEX kexec_trials_make ON kexec_trials (make, at);
