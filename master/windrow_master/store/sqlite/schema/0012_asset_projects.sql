-- Schema 12: the project that an asset belongs to. Assets of jobs that are deleted by now, and of clients, have none.
ALTER TABLE asset ADD COLUMN project TEXT NOT NULL DEFAULT '';
UPDATE asset SET project = coalesce((SELECT queue FROM job WHERE job.job_id = asset.job_id), '') WHERE job_id <> '';
CREATE INDEX asset_by_project ON asset (kind, project);
