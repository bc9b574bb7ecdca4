"""Checks of a job file, a component or a table beyond its keys: what only a run could meet, but is cheap to see now.

Where to look:

- ``validate``     what `windrow validate` does: all errors and warnings of one file or folder.
- ``standalone``   component files and tables by themselves.
- ``code``         code folders that cannot be packed, entry scripts that cannot serve.
- ``outputs``      files of others that stand where outputs go.
- ``script_look``  runs in the Python of the scripts: reads a script without importing it.
"""

from __future__ import annotations
