"""From what an input names (folders, files, patterns, places in stores) to the names of files, in byte order."""

from __future__ import annotations
