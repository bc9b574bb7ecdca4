"""The node agent: registers with the master, leases mini-batches, and runs them in worker processes.

From the top down; a package imports only from those below it:

- `agent`          the life of the process: start, drain, end. `replay` runs one mini-batch again, without a master.
- `session`        the link to the master: registration, the Work stream, heartbeats, logs.
- `control`        does what the master says: takes, prepares and ends steps, takes leases, reports capacity.
- `supervision`    the workers of all steps: their number, start, leases, deadlines, and ends.
- `results`        what workers send: results become completions; large rows and stored outputs are uploaded first.
- `fetching`       brings what mini-batches need from remote storage, before a worker gets them.
- `steps`          a step on this node: folder, copies of the code, logs.
- `environments`   builds and keeps the Python environments that steps ask for.
- `outgoing`       what waits for the master: completions until acknowledged, everything else until sent.
- `workers`        one worker process: channels, page, captured output, cause of death.
- `fetch_process`  the process that moves bytes between remote storage and this node.
- `leases`         the leases held, and how many to hold ahead. Pure: no I/O, no clock.
- `node`           this machine: identity, resources, GPUs, processes left behind by an earlier agent.
"""

from __future__ import annotations
