"""Agents in a Ray cluster: each allocation is a named detached actor that holds an agent.

`settings` reads the keys of a group, `ray_side` is all that needs the package `ray`, in a process of its own, and
`ray_provider` keeps the contract of providers.
"""

from __future__ import annotations

from windrow.fleet.provider import Kind
from windrow.fleet.providers.ray.ray_provider import RayProvider, shown
from windrow.fleet.providers.ray.settings import read

KIND = Kind(read=read, make=RayProvider, show=shown)
