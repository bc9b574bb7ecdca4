"""Dividing by partition keys: each distinct combination of their values is one mini-batch.

    keys from paths   ──► listing of all files ──► grouping ──► recipes: lists of files (`file_groups`), or of whole
                                                                table files (`table_groups`)

Groups come in the order of their key values, null last. The largest are ranked first.
Reference: docs/reference/azure-ml/parallel-job.md#division-by-partition.
"""

from __future__ import annotations
