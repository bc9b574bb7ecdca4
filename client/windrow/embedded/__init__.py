"""The embedded mode: a private master and agent on this machine, over a state folder. The real ones.

Where to look:

- ``state_folder`` who owns a state folder, and how others find the master that serves it.
- ``child``        what runs first in each started process: it ends the process when the one who started it is gone.
- ``process``      one started process: spawn, signal, wait, log.
- ``supervisor``   the pair of processes: start, restart, drain, end.
- ``session``      opens a state folder: starts the pair, or attaches to one that lives.
- ``submission``   which run a job file means: continue the unfinished one, refuse, or begin anew.
- ``run``          a whole run, for the command and for notebooks.

``state_folder``, ``process`` and ``supervisor`` are on the way to the first `run()` of a script, before anything else
of ours is imported: they use only modules that the interpreter loads anyway (no pathlib, dataclasses, subprocess or
logging).
"""

from __future__ import annotations
