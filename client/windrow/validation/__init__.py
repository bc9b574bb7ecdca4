"""Checks of job files, components and tables beyond their keys: what would fail only when it runs."""
