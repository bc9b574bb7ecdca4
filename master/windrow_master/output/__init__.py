"""Rows on their way into one output file: appended to segments as they come, concatenated in order at the end.

`files` is the only way to change the disk; `segments` and `staging` take rows in; `concatenation` makes the output from
what is committed: `extents` reads and verifies, `target` decides whether the file there may be replaced.
"""
