"""Steps that need not run, since an earlier job has made the same: by digests of settings, code, inputs and outputs.

`key` tells which settings decide what a step makes; `digests` what lies at a place; `made` keeps what steps have made.
Digests are made by a process of their own (`__main__`, asked by `asking`): inputs may be many, and take long to read.
Reference: parallel-job.md, sections 1.1 (force_rerun), 1.2 (is_deterministic) and 1.5 (allow_reuse).
"""
