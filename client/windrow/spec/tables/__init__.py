"""MLTable files and plain tables: where rows are, and how they are read, typed and selected."""

from __future__ import annotations
