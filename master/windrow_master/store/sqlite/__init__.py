"""The store over SQLite. Nothing outside this package imports sqlite3; a lint checks that.

- `store`: writes, group by group, over one connection. `groups` and `statements` turn rows into statements.
  `reopening`, `pruning` and `assets` make the other changes.
- `reader`: reads, by `pages`. `attempt_report` makes sums and report lines where the rows are.
- `loading`: makes the snapshot for a new master.
- `connections`: opens the database. `schemas` makes its tables or brings old ones up to date.
- `check_values`, `integrity`, `wal`: find out whether rows and database files are what was written.
- `examination`, `saved`, `saved_records`, `untouched`: read a database that no store has open, or that is damaged.
"""
