-- +goose Up
-- What is known of a machine's boot order, and how it came to be so.
CREATE TABLE boot_orders (
    machine_id TEXT PRIMARY KEY REFERENCES machines (id) ON DELETE CASCADE,
    problem    INTEGER NOT NULL, -- 1: ours is not in place
    doc        TEXT NOT NULL
);
CREATE INDEX boot_orders_problem ON boot_orders (problem) WHERE problem = 1;

CREATE TABLE boot_readings (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    machine_id TEXT NOT NULL REFERENCES machines (id) ON DELETE CASCADE,
    doc        TEXT NOT NULL
);
CREATE INDEX boot_readings_machine ON boot_readings (machine_id, id);
