"""This machine: who it is, what it offers, what an earlier incarnation of it has left behind."""

from __future__ import annotations
