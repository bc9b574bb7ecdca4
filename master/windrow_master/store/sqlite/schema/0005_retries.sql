-- Schema 5: from which generation on the attempts of a mini-batch count. A retry queues it with all of its tries anew.
ALTER TABLE mini_batch ADD COLUMN tries_since INTEGER NOT NULL DEFAULT 0;
