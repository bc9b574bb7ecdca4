"""The effective job: what a job file means, as records and as the document that a client submits."""

from __future__ import annotations
