"""The process that hosts a user's script: it calls init(), run() and shutdown(), and sends what run() returns.

It runs in the *user's* interpreter (Python 3.8 or newer) with the standard library alone. It imports pandas and pyarrow
only if the input is a table, or if the script itself returns a DataFrame. Python starts `boot.py`.

- `host`      calls the script for each mini-batch. `replay` does it for one, in the user's terminal.
- `script`    finds and imports the script, and gives it what it expects of its process.
- `loading`   makes the loader of mini-batches; `tables` reads tables; `loaded` is what all loaders have in common.
- `rows`      turns what `run()` returns into rows of the output.
- `protocol`  what passes between agent and worker.
"""

from __future__ import annotations
