-- Schema 8: columns that nothing ever set or read go. The check values of jobs are computed anew, without `parent_key`
-- (store/sqlite/schemas.py).
ALTER TABLE master DROP COLUMN address;
ALTER TABLE master DROP COLUMN lease_until;
ALTER TABLE job DROP COLUMN parent_key;
ALTER TABLE mini_batch DROP COLUMN not_before;
ALTER TABLE attempt DROP COLUMN code_digest;
ALTER TABLE segment DROP COLUMN uri;
