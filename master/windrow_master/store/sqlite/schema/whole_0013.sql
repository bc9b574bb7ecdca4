-- All tables of schema 13, for a new database. The migrations 0001 to 0013 lead to the same ones: a change of the schema
-- is a new migration and a new page of this kind. Tables keep this order, which is that of their places in the file.
--
-- Numbers of states and causes are those of windrow_master.core.states. Times are seconds since 1970 unless named _us.
-- `check_value`: over the other columns of the row (store/sqlite/check_values.py). Events have none: they decide nothing.

-- One row for every start of a master. The highest incarnation owns the store.
CREATE TABLE master (
  incarnation  INTEGER PRIMARY KEY,
  lease_prefix INTEGER NOT NULL UNIQUE,
  start_time   REAL NOT NULL,
  check_value  INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE job (
  job_key     INTEGER PRIMARY KEY,
  job_id      TEXT NOT NULL UNIQUE,
  request_id  TEXT NOT NULL,
  state       INTEGER NOT NULL,
  generation  INTEGER NOT NULL,
  seq         INTEGER NOT NULL,
  queue       TEXT NOT NULL,
  priority    INTEGER NOT NULL,
  weight      INTEGER NOT NULL,
  run_digest  TEXT NOT NULL,
  message     TEXT NOT NULL,
  warnings    BLOB NOT NULL, -- JSON list of text
  create_time REAL NOT NULL,
  end_time    REAL,
  check_value INTEGER NOT NULL DEFAULT 0,
  submitter   TEXT NOT NULL DEFAULT '', -- the name of the token that submitted it; '' where none was asked for
  deadline    REAL
) STRICT;
CREATE UNIQUE INDEX job_by_request ON job (request_id) WHERE request_id <> '';
CREATE INDEX job_by_state ON job (state);

-- Apart from `job`, which changes with every group, because it is large and does not.
CREATE TABLE job_document (
  job_key     INTEGER PRIMARY KEY,
  document    BLOB NOT NULL,
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE step (
  step_id        INTEGER PRIMARY KEY,
  job_key        INTEGER NOT NULL,
  ordinal        INTEGER NOT NULL,
  name           TEXT NOT NULL,
  state          INTEGER NOT NULL,
  message        TEXT NOT NULL,
  checkpoint     BLOB,
  counters       BLOB NOT NULL,
  start_time     REAL,
  end_time       REAL,
  error_category TEXT NOT NULL DEFAULT '', -- of a step that failed: what kind of error
  check_value    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX step_by_job ON step (job_key, ordinal);

-- Apart from `step` for the same reason.
CREATE TABLE step_document (
  step_id     INTEGER PRIMARY KEY,
  paths       BLOB NOT NULL,
  reader      BLOB,
  header      BLOB,
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;

-- key = step_id << 32 | index of the mini-batch in its step.
CREATE TABLE mini_batch (
  key            INTEGER PRIMARY KEY,
  item_first     INTEGER NOT NULL,
  item_count     INTEGER NOT NULL,
  recipe_offset  INTEGER NOT NULL,
  recipe_length  INTEGER NOT NULL,
  generation     INTEGER NOT NULL,
  state          INTEGER NOT NULL DEFAULT 0,
  lease_id       INTEGER NOT NULL DEFAULT 0, -- of the attempt whose outcome counts
  items_counted  INTEGER NOT NULL DEFAULT 0,
  ok_count       INTEGER NOT NULL DEFAULT 0,
  segment_id     INTEGER,                    -- NULL: it has no rows
  segment_offset INTEGER,
  rows_length    INTEGER,
  rows_crc32     INTEGER,
  row_count      INTEGER NOT NULL DEFAULT 0,
  queue_rank     INTEGER,                    -- the higher, the sooner it runs; NULL: in their order
  tries_since    INTEGER NOT NULL DEFAULT 0, -- attempts count from this generation on: a retry gives all tries anew
  recipe_crc32   INTEGER NOT NULL DEFAULT 0,
  check_value    INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE attempt (
  lease_id         INTEGER PRIMARY KEY,
  step_id          INTEGER NOT NULL,
  mini_batch       INTEGER NOT NULL,
  generation       INTEGER NOT NULL,
  node_id          TEXT NOT NULL,
  node_incarnation TEXT NOT NULL,
  process_number   INTEGER NOT NULL,
  state            INTEGER NOT NULL,
  cause            INTEGER NOT NULL,
  start_unix_us    INTEGER NOT NULL,
  elapsed_us       INTEGER NOT NULL,
  run_us           INTEGER NOT NULL,
  cpu_us           INTEGER NOT NULL,
  item_count       INTEGER NOT NULL,
  result_count     INTEGER NOT NULL,
  peak_rss_kib     INTEGER NOT NULL,
  message          TEXT NOT NULL,
  detail           TEXT NOT NULL,
  phase            INTEGER NOT NULL DEFAULT 0, -- in which it ended
  message_crc32    INTEGER NOT NULL DEFAULT 0,
  texts_crc32      INTEGER NOT NULL DEFAULT 0, -- of node_id, node_incarnation and detail
  check_value      INTEGER NOT NULL DEFAULT 0
) STRICT;
-- The second lock on "one outcome a mini-batch": at most one successful attempt (2 = SUCCEEDED).
CREATE UNIQUE INDEX attempt_succeeded ON attempt (step_id, mini_batch) WHERE state = 2;
CREATE INDEX attempt_other ON attempt (step_id, mini_batch) WHERE state <> 2;
-- With the lease id that SQLite appends: the order of reports.
CREATE INDEX attempt_by_step ON attempt (step_id);

-- Items that are not ok.
CREATE TABLE item_outcome (
  id            INTEGER PRIMARY KEY,
  step_id       INTEGER NOT NULL,
  mini_batch    INTEGER NOT NULL,
  item_first    INTEGER NOT NULL,
  item_count    INTEGER NOT NULL,
  cause         INTEGER NOT NULL,
  message       TEXT NOT NULL,
  message_crc32 INTEGER NOT NULL DEFAULT 0, -- of message and place
  check_value   INTEGER NOT NULL DEFAULT 0,
  place         TEXT NOT NULL DEFAULT ''    -- of a row of a table: its file, and its line or row there
) STRICT;
CREATE INDEX item_outcome_by_mini_batch ON item_outcome (step_id, mini_batch);

-- Files of rows in the steps' segments folders. segment_id = incarnation << 32 | n.
CREATE TABLE segment (
  segment_id  INTEGER PRIMARY KEY,
  step_id     INTEGER NOT NULL,
  name        TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  state       INTEGER NOT NULL,
  length      INTEGER NOT NULL,
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX segment_by_name ON segment (step_id, name);

-- Files written outside the state folder, by path; they outlive their job, so that a later one knows them again.
CREATE TABLE output (
  id          INTEGER PRIMARY KEY,
  path        TEXT NOT NULL,
  job_key     INTEGER NOT NULL,
  step_id     INTEGER NOT NULL,
  generation  INTEGER NOT NULL,
  incarnation INTEGER NOT NULL,
  length      INTEGER NOT NULL,
  digest      TEXT NOT NULL,
  mtime_ns    INTEGER NOT NULL,
  rows        INTEGER NOT NULL,
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX output_by_path ON output (path);

-- The row of a node that is lost stays only for its cordon.
CREATE TABLE node (
  node_id          TEXT PRIMARY KEY,
  node_incarnation TEXT NOT NULL,
  state            INTEGER NOT NULL,
  message          TEXT NOT NULL,
  resources        BLOB NOT NULL, -- JSON object
  labels           BLOB NOT NULL, -- JSON object
  register_time    REAL NOT NULL,
  cordoned         INTEGER NOT NULL DEFAULT 0, -- the name's, not the incarnation's
  check_value      INTEGER NOT NULL DEFAULT 0,
  secret_digest    TEXT NOT NULL DEFAULT '' -- sha256 of what the node proves itself by, hexadecimal; '' where it has none
) STRICT;

CREATE TABLE event (
  id      INTEGER PRIMARY KEY,
  time    REAL NOT NULL,
  job_key INTEGER,
  kind    TEXT NOT NULL,
  message TEXT NOT NULL
) STRICT;
CREATE INDEX event_by_job ON event (job_key);

-- Numbers that must never be given again, even when the rows that held them are pruned.
CREATE TABLE counted (
  name        TEXT PRIMARY KEY,
  value       INTEGER NOT NULL,
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO counted (name, value, check_value) VALUES ('job_key', 0, 2410714663), ('step_id', 0, 1928075596);

-- The registry of data assets and models. A row never changes; the highest id of a name is its latest version.
CREATE TABLE asset (
  id          INTEGER PRIMARY KEY,
  kind        INTEGER NOT NULL, -- numbers of windrow.rpc.v1.AssetKind
  name        TEXT NOT NULL,
  version     TEXT NOT NULL,
  type        TEXT NOT NULL,
  path        TEXT NOT NULL,
  is_file     INTEGER NOT NULL,
  description TEXT NOT NULL,
  tags        BLOB NOT NULL,
  create_time REAL NOT NULL,
  step_id     INTEGER,          -- of the step that has written it, which may be pruned by now
  job_id      TEXT NOT NULL DEFAULT '',
  step_name   TEXT NOT NULL DEFAULT '',
  output_name TEXT NOT NULL DEFAULT '',
  check_value INTEGER NOT NULL DEFAULT 0,
  project     TEXT NOT NULL DEFAULT '' -- that of the job or client that has registered it
) STRICT;
CREATE UNIQUE INDEX asset_by_name ON asset (kind, name, version);
CREATE INDEX asset_by_age ON asset (kind, name, id);
-- A step's output is registered once, however often its end is told.
CREATE UNIQUE INDEX asset_by_output ON asset (step_id, output_name) WHERE step_id IS NOT NULL;

-- Tokens of clients and of nodes that join. Those that were revoked stay, so that no file brings one back.
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

-- What projects may have of the cluster, as far as an operator has set it. Rows stay, also those with the default.
CREATE TABLE queue (
  name        TEXT PRIMARY KEY,  -- that of its project
  settings    BLOB NOT NULL,     -- JSON object
  revision    INTEGER NOT NULL,  -- of the change that set them
  change_time REAL NOT NULL,
  changed_by  TEXT NOT NULL,     -- the name of a token; '' where none was asked for
  check_value INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What worker time jobs have spent. Rows outlive their job.
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
CREATE INDEX asset_by_project ON asset (kind, project);

-- Programs that get agents from an engine.
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

-- What they ask engines for: one agent each.
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
