"""Exit codes of a worker process, so that the agent can tell why it ended.

Scripts rarely use numbers this high; whatever else a worker exits with is the script's own doing.
"""

from __future__ import annotations

INIT_FAILED = 190
"""`init()` failed or the script could not be loaded; an INIT_FAILED frame was sent before."""

AGENT_GONE = 191
"""The work channel has ended: there is nobody left to work for."""

CHANNEL_CLOSED = 192
"""The script closed or replaced the host's descriptors; results can no longer be sent."""

HOST_FAULT = 193
"""The host could not start (its configuration, page or channels), or met a fault of its own. stderr says which."""

CODE_CHANGED = 195
"""The step's code on this node is not what was unpacked (`checked_imports`). 194 is `launch.py`'s."""
