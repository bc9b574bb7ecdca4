"""Planning: turns an input into a listing and a stream of mini-batches, in a process of its own (docs/contracts.md,
section 3).

    request ──► entries (folder, file, pattern) ──► walk, in byte order ──► file lists: cut by count ─────────────┐
                                                        └──► tables: pin columns and types, cut by bytes or row ──┤
                                                                                                                  ▼
    master ◄── stdout ◄── group: records + checkpoint ◄── synced ◄── plan_files (recipes, listing) ◄── emitter ◄──
    mini-batches

A planner for files starts in a few dozen milliseconds: this package imports neither pandas nor pyarrow before a table
asks for them.
"""

from __future__ import annotations

from windrow_master.planning.recipes.description import describe_items

__all__ = ["describe_items"]
