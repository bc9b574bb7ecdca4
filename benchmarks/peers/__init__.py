"""The tools that a user would otherwise choose, each as a program of its own, written as a competent user would write
it.

All programs for the work on files take the same arguments (`arguments.py`): the work, the folder, the size of a
mini-batch, the output file, the stamps folder. Each lists the folder sorted, runs the work on two worker processes, and
writes all rows, in order, into one file, which it renames into place. None of them makes its rows durable.
"""

from __future__ import annotations
