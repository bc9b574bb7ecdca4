"""`windrow doctor`: is this machine fit, and what is wrong?

- ``findings``     one line of the answer: ok, warn or fail; what was seen; what to do.
- ``installation`` Windrow itself: its Python, its extras.
- ``machine``      what the machine has for workers: asks the agent's own code, in a process of its own.
- ``state``        whether the state folder can be one: asks the master's own code.
- ``scripts``      the Python that runs scripts.
- ``access``       credentials of stores (names, never values), contexts.
- ``master``       a served master: reached, trusted, and its nodes.
- ``examine``      all of it, in order.

Nothing is changed but for a folder that the trials of the state folder make and remove.
"""

from __future__ import annotations
