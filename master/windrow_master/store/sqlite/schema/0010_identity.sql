-- Schema 10: who submitted a job, what a node proves itself by, and the tokens of clients and joining nodes.
ALTER TABLE job ADD COLUMN submitter TEXT NOT NULL DEFAULT '';
ALTER TABLE node ADD COLUMN secret_digest TEXT NOT NULL DEFAULT '';
CREATE TABLE token (
  digest      TEXT PRIMARY KEY,  -- sha256 of the token, hexadecimal
  name        TEXT NOT NULL,
  kind        INTEGER NOT NULL,  -- windrow_master.store.records.TokenKind
  role        INTEGER NOT NULL,  -- windrow_master.store.records.Role; 0 of join tokens
  project     TEXT NOT NULL,     -- '': all of them
  create_time REAL NOT NULL,
  expire_time REAL,
  uses_left   INTEGER,           -- nodes that it may still admit; NULL: any number
  last_use    REAL,
  revoke_time REAL,
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;
