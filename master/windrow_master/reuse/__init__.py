"""Steps that need not run, since an earlier job has made the same: by digests of settings, code, inputs and outputs.

`key` tells which settings decide what a step makes; `digests` what lies at a place; `made` keeps what steps have made.
Digests are made by a process of their own (`__main__`, asked by `asking`): inputs may be many, and take long to read.
Reference: docs/reference/azure-ml/parallel-job.md#pipelines, #parallel-steps, #version-1 (allow_reuse).
"""
