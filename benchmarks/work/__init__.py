"""The work that is measured: the same functions under Windrow and under its peers.

This folder is also the `code` of Windrow's benchmark jobs, so its modules import each other by their bare names.
"""

from __future__ import annotations
