-- Schema 11: what projects may have of the cluster, and by when a job should have ended.
ALTER TABLE job ADD COLUMN deadline REAL;
CREATE TABLE queue (
  name        TEXT PRIMARY KEY,  -- that of its project
  settings    BLOB NOT NULL,     -- JSON object
  revision    INTEGER NOT NULL,  -- of the change that set them
  change_time REAL NOT NULL,
  changed_by  TEXT NOT NULL,     -- the name of a token; '' where none was asked for
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;
