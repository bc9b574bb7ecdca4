"""What a job leaves for people: its logs and its list of failed items. Reference: parallel-job.md, section 7."""
