"""What a job leaves for people: logs, a report, a list of failed items. Reference: parallel-job.md, section 7."""
