-- +goose Up
CREATE TABLE boots (
    key        TEXT PRIMARY KEY,
    machine_id TEXT NOT NULL,
    live       INTEGER NOT NULL, -- not revoked
    created    INTEGER NOT NULL,
    doc        TEXT NOT NULL
);
CREATE UNIQUE INDEX boots_one_live ON boots (machine_id) WHERE live = 1;
CREATE INDEX boots_created ON boots (created);

CREATE TABLE agent_sessions (
    id         TEXT PRIMARY KEY,
    boot_key   TEXT NOT NULL REFERENCES boots (key) ON DELETE CASCADE,
    machine_id TEXT NOT NULL,
    live       INTEGER NOT NULL, -- not ended
    doc        TEXT NOT NULL
);
CREATE UNIQUE INDEX agent_sessions_one_live ON agent_sessions (machine_id) WHERE live = 1;
CREATE INDEX agent_sessions_boot ON agent_sessions (boot_key);

CREATE TABLE phone_homes (
    secret_hash TEXT PRIMARY KEY,
    machine_id  TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    created     INTEGER NOT NULL
);
CREATE INDEX phone_homes_machine ON phone_homes (machine_id);
