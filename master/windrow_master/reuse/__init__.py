"""Steps that need not run because an earlier job made the same: by digests of settings, code, inputs and outputs.

- `key`               which settings decide what a step makes
- `digests`           the digest of what is at a place; `digest_cache`: files that have not changed are not read
- `notes`             what earlier steps made
- `digest_processes`  asks processes of their own (`__main__`) for digests: inputs may be many, and take long to read

Reference: docs/reference/azure-ml/parallel-job.md#pipelines, #parallel-steps, #version-1 (allow_reuse).
"""
