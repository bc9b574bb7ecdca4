"""What a job leaves for people: logs, a report, a list of failed items.

Reference: docs/reference/azure-ml/parallel-job.md#logs.
"""
