"""Examines a damaged state folder and saves what can be read. Changes nothing in the folder.

- `folder`: a state folder that may be damaged, with its files and what can be read of its records.
- `checks`: compares everything durable with what it must be, and yields findings (`windrow state check`). `file_checks`
  holds the checks of files that are not about rows of the database.
- `damage`: a finding, and what it means.
- `export`: saves the rows, documents, code and lists that can still be read (`windrow state salvage`).

`python -m windrow_master.salvage` serves the command line (docs/contracts.md, section 5b).
"""
