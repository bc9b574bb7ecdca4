"""Checks job files, components and tables beyond their keys: finds what would fail only in a run."""
