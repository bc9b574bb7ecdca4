"""Backups of a state folder, made while its master runs, and brought back.

`python -m windrow_master.backup make STATE DIR | restore DIR STATE`, for `windrow backup` and `windrow restore`.

- `making`      the database first, then the files: what it names was there before it did
- `restoring`   into an empty folder, whole or not at all
- `contents`    which files of a state folder belong to it; the list of a backup's files, with their checksums
"""
