-- Schema 13: fleets, and what they ask engines for.
CREATE TABLE fleet (
  name                TEXT PRIMARY KEY,
  groups              BLOB NOT NULL,    -- JSON list
  program             TEXT NOT NULL,    -- who runs it, in words
  program_incarnation TEXT NOT NULL,
  program_time        REAL NOT NULL,
  earlier             BLOB NOT NULL,    -- JSON list: digests of the incarnations that had it before
  paused              INTEGER NOT NULL, -- 1: it asks for nothing more
  paused_by           TEXT NOT NULL,    -- the name of a token; '' where none was asked for
  pause_time          REAL,
  revision            INTEGER NOT NULL, -- counted up by each change of an operator
  check_value         INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE allocation (
  name             TEXT PRIMARY KEY,
  fleet            TEXT NOT NULL,
  group_name       TEXT NOT NULL,
  engine_id        TEXT NOT NULL,    -- '': the engine has not said yet
  state            INTEGER NOT NULL, -- windrow_master.core.states.AllocationState
  reason           TEXT NOT NULL,
  begin_time       REAL NOT NULL,
  queue_time       REAL,
  start_time       REAL,
  join_time        REAL,
  end_time         REAL,
  node_id          TEXT NOT NULL,    -- '': no agent has joined
  node_incarnation TEXT NOT NULL,
  check_value      INTEGER NOT NULL DEFAULT 0
) STRICT;
