"""The master's state machine: no I/O, no clock, no randomness.

`Core.handle(command, now)` changes the state in memory at once, marks rows dirty and gathers effects. Whoever drives it
(the writer, a test, the simulation) commits the dirty rows and carries the effects out. Read `core.py` first; the state
lives in `state.py`, and each other file holds the handlers of one concern.
"""
