"""What would become of a job, told without beginning it: `python -m windrow_master.dry_run`.

One process for one question: a line of JSON on standard input, one on standard output (docs/contracts.md, section 5b).
Paths are resolved, outputs looked at and inputs divided by the very code that does so for a job; the planner of each
step works in a temporary folder of that process. A state folder is only read.

- ``plan``      the whole answer: the job's name, and each step's paths, outputs and division.
- ``division``  starts the planner of a step, and counts what it sends, up to a limit of time, number and disk.
- ``taking_over``  what it would take over from an earlier job.
- ``standing``  what a state folder holds already: outputs, names of jobs, unfinished runs.
"""

from __future__ import annotations
