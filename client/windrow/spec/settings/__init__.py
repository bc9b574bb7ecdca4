"""What can be set: the keys of a job file and the runtime's own arguments, as tables of fields."""

from __future__ import annotations
