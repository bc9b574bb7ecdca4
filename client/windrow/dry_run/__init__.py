"""A run that does not begin: what a job would be, step by step, without a trace outside a temporary folder.

- ``ask``       asks the master's own code, in a process of its own, for paths and divisions.
- ``document``  the whole plan as one JSON document: what is asked, and what the job file says.
"""

from __future__ import annotations
