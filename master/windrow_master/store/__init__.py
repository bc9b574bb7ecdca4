"""The durable state of a master: jobs, steps, mini-batches, attempts, nodes, events, segments, outputs.

- `protocol`: what the rest of the master asks of a store. `tests/store/conformance` runs over every store.
- `records`: the rows that a store takes and returns, beside those of the core (`core.records`). `found`: what can be
  read of a damaged store.
- `errors`: what can go wrong.
- `sqlite`: the store over SQLite. Another store would be another package beside it.
"""
