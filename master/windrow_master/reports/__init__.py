"""What a job leaves for people: its logs and its list of failed items.

Reference: docs/reference/azure-ml/parallel-job.md#logs.
"""
