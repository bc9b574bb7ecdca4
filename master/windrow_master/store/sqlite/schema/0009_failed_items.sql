-- Schema 9: a failed item of a table says where its row is. Columns that nothing ever set go.
ALTER TABLE mini_batch DROP COLUMN parent_id;
ALTER TABLE mini_batch DROP COLUMN output_order;
ALTER TABLE item_outcome ADD COLUMN place TEXT NOT NULL DEFAULT '';
