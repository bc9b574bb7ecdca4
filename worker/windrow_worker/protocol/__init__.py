"""What agent and worker say to each other (docs/contracts.md, section 4): packets, frames, the page, exit codes."""

from __future__ import annotations
