"""What scripts import of Azure ML's runtime: in the worker, and in processes that the script starts."""

from __future__ import annotations

from importlib import import_module

import_module("windrow_entry")  # makes windrow_worker importable

from windrow_worker.script.entry_script import EntryScript  # noqa: E402

__all__ = ["EntryScript"]
