-- Schema 11: what projects may have of the cluster and have spent, and by when a job should have ended.
ALTER TABLE job ADD COLUMN deadline REAL;
CREATE TABLE queue (
  name        TEXT PRIMARY KEY,  -- that of its project
  settings    BLOB NOT NULL,     -- JSON object
  revision    INTEGER NOT NULL,  -- of the change that set them
  change_time REAL NOT NULL,
  changed_by  TEXT NOT NULL,     -- the name of a token; '' where none was asked for
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE ledger (
  job_key      INTEGER NOT NULL,
  day          INTEGER NOT NULL, -- days since 1970-01-01, UTC
  project      TEXT NOT NULL,
  pool         TEXT NOT NULL,    -- names of pools, with commas between; '': nodes that are in none
  job_id       TEXT NOT NULL,
  submitter    TEXT NOT NULL,    -- the name of a token; '' where none was asked for
  useful_us    INTEGER NOT NULL, -- of attempts that succeeded
  retried_us   INTEGER NOT NULL, -- of attempts that failed
  lost_us      INTEGER NOT NULL, -- of attempts that were lost with their node
  preempted_us INTEGER NOT NULL, -- of attempts that were taken back, or superseded
  cancelled_us INTEGER NOT NULL,
  started_us   INTEGER NOT NULL, -- what workers took to be ready
  lived_us     INTEGER NOT NULL, -- what workers lived in all
  check_value  INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (job_key, day, project, pool)
) STRICT;
CREATE INDEX ledger_by_day ON ledger (day);
