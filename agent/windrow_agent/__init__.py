"""The node agent: registers with the master, leases mini-batches, and runs them in worker processes.

Where to look:

- ``leases``   what is held: the ledger, how much to hold ahead, how steps share the slots. Pure: no I/O, no clock.
- ``workers``  worker processes: spawning, channels, deadlines, causes of death, captured output.
- ``session``  the way to the master: registration, the Work stream, heartbeats, large rows, logs.
- ``node``     this machine: identity, resources, GPUs, strays of an earlier incarnation.
- ``steps``    what a step needs on this node: its code, folders and workers.
- ``dispatch`` joins them: assignments to workers, results to the outbox.
- ``agent``    the life of the process: start, drain, end.
"""

from __future__ import annotations
