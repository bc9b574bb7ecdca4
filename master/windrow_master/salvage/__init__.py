"""Examines a damaged state folder, and saves what can be read. Changes nothing in the folder.

- `folder`      a state folder that may be damaged: its files, and what can be read of its records.
- `checks`      everything that is durable against what it must be, as findings: `windrow state check`; the part that
                is about files, and not about rows of the database, is in `file_checks`.
- `damage`      a finding, and what it means.
- `export`      the rows, documents, code and lists that can still be read: `windrow state salvage`.

`python -m windrow_master.salvage` answers the command line (docs/contracts.md, section 5b).
"""
