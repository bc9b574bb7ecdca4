"""This machine: its identity, its resources and GPUs, what the kernel does for the agent, processes left behind."""

from __future__ import annotations
