"""What a Docker engine is asked for: the container of one allocation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from windrow.fleet.provider import Request
from windrow.fleet.providers.docker.settings import PROCESSES_MAX, STOP_TIMEOUT_S, DockerSettings

ALLOCATION, GROUP = "windrow.allocation", "windrow.group"
"""Labels: the allocation's name, and the prefix of its group."""
PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
COMPOSE_LABELS = {
    "com.docker.compose.config-hash": "",
    "com.docker.compose.container-number": "1",
    "com.docker.compose.oneoff": "False",
}
"""Without them, neither Compose takes a container for one of its project."""
OF_A_FLEET = "of-the-fleet"
"""The service that containers of a fleet name in the labels of Compose: none that the file has."""
_COPIED = ("Image", "User", "WorkingDir", "StopTimeout")
_NANO = 1_000_000_000


def of_settings(settings: DockerSettings, request: Request, prefix: str) -> dict[str, Any]:
    """A container as the group's settings say: with no privileges that they do not name."""
    body: dict[str, Any] = {
        "Image": settings.image,
        "Env": [],
        "Labels": {},
        "HostConfig": {
            "Binds": list(settings.mounts),
            "CapDrop": ["ALL"],
            "CapAdd": list(settings.capabilities),
            "SecurityOpt": ["no-new-privileges:true"],
            "PidsLimit": PROCESSES_MAX,
        },
    }
    if settings.user:
        body["User"] = settings.user
    if settings.network:
        body["HostConfig"]["NetworkMode"] = settings.network
    return _with_agent(body, settings, request, prefix)


def like(pattern: Mapping[str, Any], settings: DockerSettings, request: Request, prefix: str) -> dict[str, Any]:
    """A container like another one, as the engine describes that: its image, user, variables, mounts, network, limits
    and privileges. The labels of Compose make it part of the project, so that `down --remove-orphans` takes it away.
    """
    config, host_config = pattern["Config"], dict(pattern["HostConfig"])
    body: dict[str, Any] = {name: config[name] for name in _COPIED if config.get(name)}
    body["Env"] = list(config.get("Env") or ())
    project = (config.get("Labels") or {}).get(PROJECT)
    body["Labels"] = {**COMPOSE_LABELS, PROJECT: project, SERVICE: OF_A_FLEET} if project else {}
    for name in ("ContainerIDFile", "PortBindings", "Links", "VolumesFrom", "AutoRemove"):
        host_config.pop(name, None)
    body["HostConfig"] = host_config
    return _with_agent(body, settings, request, prefix)


def _with_agent(body: dict[str, Any], settings: DockerSettings, request: Request, prefix: str) -> dict[str, Any]:
    host_config = body["HostConfig"]
    host_config["RestartPolicy"] = {"Name": "no"}
    # An init process passes on the signal to stop, and waits for what nobody else waits for.
    host_config["Init"] = True
    if request.shape.memory_bytes:
        host_config |= {"Memory": request.shape.memory_bytes, "MemorySwap": request.shape.memory_bytes}
    if settings.cpus is not None:
        host_config["NanoCpus"] = int(settings.cpus * _NANO)
    if request.shape.gpus:
        host_config["DeviceRequests"] = [{"Count": request.shape.gpus, "Capabilities": [["gpu"]]}]
    body["Env"] += [f"{name}={value}" for name, value in request.agent.environment.items()]
    body["Labels"] |= {ALLOCATION: request.name, GROUP: prefix}
    return {
        **body,
        "Entrypoint": [],
        "Cmd": list(request.agent.arguments),
        # What an image or a service has looks for an agent in another folder.
        "Healthcheck": {"Test": ["NONE"]},
        "StopTimeout": settings.stop_timeout_s or body.get("StopTimeout") or STOP_TIMEOUT_S,
    }


def shown(settings: DockerSettings, request: Request) -> str:
    """What the engine would be asked for a request, for people."""
    prefix = f"{request.name.rpartition('-')[0]}-"
    body = of_settings(settings, request, prefix)
    like_whom = f"  # the rest as the service {settings.like_service} of its project" if settings.like_service else ""
    if settings.like_service:
        body = {name: body[name] for name in ("Env", "Labels", "Cmd", "StopTimeout")}
    return f"POST /containers/create?name={request.name}{like_whom}\n{json.dumps(body, indent=2)}"
