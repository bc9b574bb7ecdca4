"""The durable state of a master: jobs, steps, mini-batches, attempts, nodes, events, segments, outputs.

- `protocol`  what the rest of the master asks of a store. `tests/store/conformance` runs over every store.
- `records`   the rows that it is given and gives, beside those of the core (`core.records`); `found`: what can be
                read of a damaged one.
- `errors`    what can go wrong.
- `sqlite`    the store over SQLite. Another store is another package beside it.
"""
