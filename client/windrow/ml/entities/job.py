"""What notebooks ask of an object when they ask whether it is a job."""

from __future__ import annotations


class Job:
    """A job, made or submitted, and each step of a submitted one: for `isinstance`. `PipelineJob` and `load_job` make
    jobs."""
