-- Schema 6: each mini-batch knows the crc32 of its recipe.
ALTER TABLE mini_batch ADD COLUMN recipe_crc32 INTEGER NOT NULL DEFAULT 0;
