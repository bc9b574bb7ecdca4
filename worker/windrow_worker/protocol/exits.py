"""Exit codes of a worker process, from which the agent knows why it ended.

Scripts rarely use numbers this high; every other exit code is the script's own.
"""

from __future__ import annotations

INIT_FAILED = 190
"""`init()` failed, or the script could not be loaded; an INIT_FAILED frame was sent before."""

AGENT_GONE = 191
"""The work channel was closed: the agent is gone."""

CHANNEL_CLOSED = 192
"""The script has closed or replaced the host's descriptors; results can no longer be sent."""

HOST_FAULT = 193
"""The host could not start (its configuration, page or channels), or failed in its own code. stderr says why."""

CODE_CHANGED = 195
"""The step's code on this node is not what was unpacked (`checked_imports`). 194 is `launch.py`'s."""
