-- +goose Up
-- What only a person can say of a port: see app.PortQuestion. The id is made of the facts.
CREATE TABLE port_questions (
    id         TEXT PRIMARY KEY,
    mac        TEXT NOT NULL,
    owner_id   TEXT REFERENCES machines (id) ON DELETE CASCADE, -- NULL: the port is nobody's
    machine_id TEXT NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
    state      TEXT NOT NULL,
    last       INTEGER NOT NULL,
    doc        TEXT NOT NULL
);
CREATE INDEX port_questions_mac ON port_questions (mac);
CREATE INDEX port_questions_owner ON port_questions (owner_id);
CREATE INDEX port_questions_machine ON port_questions (machine_id);
