"""The master's state machine: no I/O, no clock, no randomness.

`Core.handle(command, now)` changes the state in memory at once, marks rows dirty and gathers effects. Its driver
(the writer, a test, the simulation) commits the dirty rows and carries the effects out. Read `core.py` first. The state
is in `state.py` and `step_parts.py`, its machines in `transitions.py`; each other module holds one concern.
"""
