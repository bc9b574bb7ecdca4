"""Agents from a Docker engine (or Podman's service, which speaks the same): each allocation is a container.

`settings` reads the keys of a group, `engine_api` speaks to the engine, `container` makes what it is asked for, and
`docker_provider` keeps the contract of providers.
"""

from __future__ import annotations

from windrow.fleet.provider import Kind
from windrow.fleet.providers.docker.container import shown
from windrow.fleet.providers.docker.docker_provider import DockerProvider
from windrow.fleet.providers.docker.settings import read

KIND = Kind(read=read, make=DockerProvider, show=shown)
