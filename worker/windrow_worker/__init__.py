"""The process that hosts a user's script: it calls init(), run() and shutdown(), and sends what run() returns.

It runs in the *user's* interpreter (Python 3.8 or newer) with the standard library alone; pandas and pyarrow are
imported only where the input is a table, or where the script itself returns a DataFrame. `boot.py` is the way in.
"""

from __future__ import annotations
