-- +goose Up
CREATE TABLE machines (
    id      TEXT PRIMARY KEY,
    name    TEXT NOT NULL UNIQUE,
    state   TEXT NOT NULL,
    pool    TEXT NOT NULL,
    profile TEXT NOT NULL,
    uuid    TEXT NOT NULL,
    version INTEGER NOT NULL,
    search  TEXT NOT NULL, -- lower case: what a list's text filter looks through
    doc     TEXT NOT NULL
);
-- A list is answered from this index; only the rows of the page are read.
CREATE INDEX machines_list ON machines (name, state, pool, id, search);
CREATE INDEX machines_uuid ON machines (uuid) WHERE uuid <> '';
CREATE INDEX machines_profile ON machines (profile) WHERE profile <> '';
CREATE INDEX machines_pool ON machines (pool) WHERE pool <> '';

CREATE TABLE machine_macs (
    mac        TEXT PRIMARY KEY,
    machine_id TEXT NOT NULL REFERENCES machines (id) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE INDEX machine_macs_machine ON machine_macs (machine_id);

CREATE TABLE machine_labels (
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    machine_id TEXT NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
    PRIMARY KEY (key, value, machine_id)
) WITHOUT ROWID;
CREATE INDEX machine_labels_machine ON machine_labels (machine_id);

-- Machines by state, kept by triggers, so that no list counts ten thousand rows.
CREATE TABLE machine_counts (
    state TEXT PRIMARY KEY,
    n     INTEGER NOT NULL
) WITHOUT ROWID;
-- +goose StatementBegin
CREATE TRIGGER machines_counted AFTER INSERT ON machines BEGIN
    INSERT INTO machine_counts (state, n) VALUES (new.state, 1) ON CONFLICT (state) DO UPDATE SET n = n + 1;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER machines_uncounted AFTER DELETE ON machines BEGIN
    UPDATE machine_counts SET n = n - 1 WHERE state = old.state;
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER machines_recounted AFTER UPDATE OF state ON machines WHEN new.state <> old.state BEGIN
    UPDATE machine_counts SET n = n - 1 WHERE state = old.state;
    INSERT INTO machine_counts (state, n) VALUES (new.state, 1) ON CONFLICT (state) DO UPDATE SET n = n + 1;
END;
-- +goose StatementEnd

CREATE TABLE inventories (
    machine_id TEXT PRIMARY KEY REFERENCES machines (id) ON DELETE CASCADE,
    taken      INTEGER NOT NULL,
    doc        TEXT NOT NULL
);

CREATE TABLE workflows (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    verb       TEXT NOT NULL,
    machine_id TEXT NOT NULL, -- outlives the machine until it ends
    active     INTEGER NOT NULL,
    doc        TEXT NOT NULL  -- without steps and data
);
CREATE UNIQUE INDEX workflows_one_active ON workflows (machine_id) WHERE active = 1;
CREATE INDEX workflows_machine ON workflows (machine_id, seq);
CREATE INDEX workflows_verb ON workflows (verb, seq);

CREATE TABLE workflow_data (
    seq  INTEGER PRIMARY KEY REFERENCES workflows (seq) ON DELETE CASCADE,
    data TEXT NOT NULL
);

CREATE TABLE workflow_steps (
    seq      INTEGER NOT NULL REFERENCES workflows (seq) ON DELETE CASCADE,
    idx      INTEGER NOT NULL,
    id       TEXT NOT NULL,
    doc      TEXT NOT NULL,
    progress TEXT,
    PRIMARY KEY (seq, idx)
);

CREATE TABLE journal (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    seq     INTEGER NOT NULL REFERENCES workflows (seq) ON DELETE CASCADE,
    time    INTEGER NOT NULL,
    step_id TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    what    TEXT NOT NULL,
    data    TEXT
);
CREATE INDEX journal_workflow ON journal (seq, id);

CREATE TABLE images (
    id   TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    doc  TEXT NOT NULL
);

CREATE TABLE subnets (
    id  TEXT PRIMARY KEY,
    doc TEXT NOT NULL
);

CREATE TABLE leases (
    addr      TEXT PRIMARY KEY,
    mac       TEXT NOT NULL,
    subnet_id TEXT NOT NULL REFERENCES subnets (id) ON DELETE CASCADE,
    expires   INTEGER NOT NULL,
    doc       TEXT NOT NULL
);
CREATE INDEX leases_subnet ON leases (subnet_id);

CREATE TABLE discoveries (
    mac  TEXT PRIMARY KEY,
    last INTEGER NOT NULL,
    doc  TEXT NOT NULL
);
CREATE INDEX discoveries_last ON discoveries (last);

CREATE TABLE users (
    id   TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    hash TEXT NOT NULL,
    doc  TEXT NOT NULL
);

CREATE TABLE sessions (
    id      TEXT PRIMARY KEY,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created INTEGER NOT NULL,
    seen    INTEGER NOT NULL,
    expires INTEGER NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expires ON sessions (expires);

CREATE TABLE tokens (
    id        TEXT PRIMARY KEY,
    user_id   TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    hash      TEXT NOT NULL UNIQUE,
    last_used INTEGER NOT NULL,
    doc       TEXT NOT NULL
);
CREATE INDEX tokens_user ON tokens (user_id);

CREATE TABLE secrets (
    name    TEXT PRIMARY KEY,
    sealed  BLOB NOT NULL,
    created INTEGER NOT NULL,
    updated INTEGER NOT NULL
);

CREATE TABLE events (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    time       INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    level      TEXT NOT NULL,
    machine_id TEXT NOT NULL,
    workflow   TEXT NOT NULL,
    actor      TEXT NOT NULL,
    message    TEXT NOT NULL,
    data       TEXT
);
CREATE INDEX events_machine ON events (machine_id, id) WHERE machine_id <> '';
CREATE INDEX events_workflow ON events (workflow, id) WHERE workflow <> '';
CREATE INDEX events_kind ON events (kind, id);
CREATE INDEX events_time ON events (time);

-- Rows of events by machine, and of all under '', so that pruning never counts.
CREATE TABLE event_counts (
    machine_id TEXT PRIMARY KEY,
    n          INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE profiles (
    name TEXT PRIMARY KEY,
    doc  TEXT NOT NULL
);

CREATE TABLE pools (
    name    TEXT PRIMARY KEY,
    profile TEXT NOT NULL,
    doc     TEXT NOT NULL
);

CREATE TABLE settings (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;
