"""The store over SQLite. Nothing outside of this package imports sqlite3, which a lint checks.

- `store`        writes: one connection, group by group. `groups` and `statements` turn rows into statements,
                   `reopening`, `pruning` and `assets` do what is no group.
- `reader`       reads, by `pages`; `attempt_report` adds up and writes lines where the rows are.
- `loading`      makes the snapshot for a new master.
- `connections`  opens the database; `schemas` gives it its tables, or brings those it has up to date.
- `check_values`, `integrity`, `wal`: whether rows, and the database's files, are what was written.
- `examination`, `saved`, `saved_records`, `untouched`: reading a database that no store has open, or that is
                   damaged.
"""
