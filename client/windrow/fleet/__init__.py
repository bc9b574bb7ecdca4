"""Fleets: as many agents as the queue needs, from an engine that people have."""
