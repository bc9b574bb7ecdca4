"""What a worker may reach: which paths it is given (`policy`), and how the kernel is told (`confinement`)."""

from __future__ import annotations
