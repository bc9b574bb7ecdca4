"""A dry run: what a job would do, found without starting it (`python -m windrow_master.dry_run`).

One process answers one question: a line of JSON on standard input, one on standard output (docs/contracts.md, section
5b). The code that resolves paths, checks outputs and divides inputs is the code that does so for a job; the planner of
each step works in a temporary folder. A state folder is only read.

- `plan`: the whole answer: the job's name, and each step's paths, outputs and division.
- `division`: starts the planner of a step and counts what it sends, up to a limit of time, number and disk.
- `earlier_results`: what the step would take over from an earlier job.
- `existing_state`: what a state folder already holds: outputs, names of jobs, unfinished runs.
"""

from __future__ import annotations
