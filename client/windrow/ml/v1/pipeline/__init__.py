"""Pipelines and their steps."""
