-- Schema 7: rows have check values (check_values.py computes and compares them; schemas.py fills them in for
-- rows that are here already). Not of events: they decide nothing.
ALTER TABLE mini_batch ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt ADD COLUMN message_crc32 INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt ADD COLUMN texts_crc32 INTEGER NOT NULL DEFAULT 0; -- of node_id, node_incarnation and detail
ALTER TABLE attempt ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE item_outcome ADD COLUMN message_crc32 INTEGER NOT NULL DEFAULT 0;
ALTER TABLE item_outcome ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job_document ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE step ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE step_document ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE segment ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE output ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE asset ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE counted ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
ALTER TABLE master ADD COLUMN check_value INTEGER NOT NULL DEFAULT 0;
