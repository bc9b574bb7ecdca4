"""Replaces the package of Azure ML's runtime if that is not installed
(docs/reference/azure-ml/parallel-job.md#workers).
"""

from __future__ import annotations
