-- +goose Up
UPDATE pools SET doc = json_set(json_remove(doc, '$.hardwareProfile'), '$.policy', json_object('hardwareProfile', profile)) WHERE profile <> '';

-- One row for each operation on a BMC; its id is the operation's idempotency key.
CREATE TABLE bmc_operations (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    machine_id TEXT NOT NULL,
    repeat_of  TEXT, -- attempt, operation and digest of the arguments of a write: a repeated delivery finds its row
    doc        TEXT NOT NULL
);
CREATE UNIQUE INDEX bmc_operations_repeat ON bmc_operations (repeat_of) WHERE repeat_of IS NOT NULL;
CREATE INDEX bmc_operations_machine ON bmc_operations (machine_id, id);

CREATE TABLE approvals (
    id      TEXT PRIMARY KEY,
    state   TEXT NOT NULL,
    created INTEGER NOT NULL,
    doc     TEXT NOT NULL
);
CREATE INDEX approvals_created ON approvals (created);
