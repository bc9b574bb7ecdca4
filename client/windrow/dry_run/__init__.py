"""Dry runs: the plan of a job, step by step. Nothing is started or kept."""
