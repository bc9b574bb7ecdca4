"""How a job file names things: names, expressions, locations of data, registered assets."""

from __future__ import annotations
