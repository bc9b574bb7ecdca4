-- Schema 4: the registry of data assets and models. A row never changes; the highest id of a name is its latest version.
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
  output_name TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE UNIQUE INDEX asset_by_name ON asset (kind, name, version);
CREATE INDEX asset_by_age ON asset (kind, name, id);
-- A step's output is registered once, however often its end is told.
CREATE UNIQUE INDEX asset_by_output ON asset (step_id, output_name) WHERE step_id IS NOT NULL;
