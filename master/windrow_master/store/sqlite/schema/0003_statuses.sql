-- Schema 3: in what phase an attempt ended, and what kind of error ended a step, for statuses and categories in reports.
ALTER TABLE attempt ADD COLUMN phase INTEGER NOT NULL DEFAULT 0;
ALTER TABLE step ADD COLUMN error_category TEXT NOT NULL DEFAULT '';
