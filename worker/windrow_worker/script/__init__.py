"""The user's script: found, imported, and given what it expects of the process around it."""

from __future__ import annotations
