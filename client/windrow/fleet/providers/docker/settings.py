"""What a group of a fleet says of a Docker engine."""

from __future__ import annotations

from typing import NamedTuple

from windrow.common.quantities import seconds_in
from windrow.errors import UsageError
from windrow.fleet.providers.docker.engine_api import check_address
from windrow.spec.reading.context import Context
from windrow.spec.reading.keys import check_keys, read_scalar, read_text, read_texts
from windrow.spec.reading.nodes import Mapping, Scalar, is_null, shown
from windrow.spec.settings.fields import CPUS_MAX, CPUS_MIN, Field

STOP_TIMEOUT_S = 45
"""Longer than an agent's grace period when it drains, 30 s."""
PROCESSES_MAX = 8192
_KEYS = {
    "host": Field("text"),
    "like_service": Field("text"),
    "image": Field("text"),
    "network": Field("text"),
    "mounts": Field("texts"),
    "user": Field("text"),
    "capabilities": Field("texts"),
    "cpus": Field("number", CPUS_MIN, CPUS_MAX),
    "stop_timeout": Field("text"),
}
_OF_THE_SERVICE = ("image", "network", "mounts", "user", "capabilities")


class DockerSettings(NamedTuple):
    """How containers are made."""

    image: str = ""
    like_service: str = ""
    """The service of the fleet's own Compose project whose container they are made like; "": of none."""
    host: str = ""
    """The engine's address; "": DOCKER_HOST, or the engine of this machine."""
    network: str = ""
    """"": the engine's default."""
    mounts: tuple[str, ...] = ()
    """As `docker run --volume` takes them: `SOURCE:TARGET` or `SOURCE:TARGET:ro`."""
    user: str = ""
    """"": that of the image."""
    capabilities: tuple[str, ...] = ()
    """Of all Linux capabilities, a container has only these."""
    cpus: float | None = None
    """The processors that a container may use; None: all."""
    stop_timeout_s: int | None = None
    """So long after the signal to stop, the engine kills what still runs; None: that of the service, or 45 s."""


def read(mapping: Mapping, key: str, context: Context) -> DockerSettings:
    """Reads the keys below `docker`."""
    check_keys(mapping, _KEYS, key, context)
    entries = mapping.entries

    def text(name: str) -> str:
        return read_text(entries.get(name), f"{key}.{name}", context) or ""

    def texts(name: str) -> tuple[str, ...]:
        return tuple(read_texts(entries.get(name), f"{key}.{name}", context))

    cpus = read_scalar(entries.get("cpus"), _KEYS["cpus"], f"{key}.cpus", context)
    settings = DockerSettings(
        text("image"),
        text("like_service"),
        text("host"),
        text("network"),
        texts("mounts"),
        text("user"),
        texts("capabilities"),
        None if cpus is None else float(cpus),
        _stop_timeout_s(mapping, f"{key}.stop_timeout", context),
    )
    if not settings.image and not settings.like_service:
        context.problems.error(
            mapping, f"{key}.image", "is missing; name the image of the agents, such as windrow-agent."
        )
    if settings.like_service:
        for name in _OF_THE_SERVICE:
            if name in entries:
                context.problems.error(
                    entries[name], f"{key}.{name}", "is that of the service in like_service. Remove one of the two."
                )
    for mount in settings.mounts:
        if not _is_mount(mount):
            context.problems.error(
                entries["mounts"],
                f"{key}.mounts",
                f'holds "{mount}"; write SOURCE:TARGET or SOURCE:TARGET:ro. SOURCE is the name of a volume or an '
                "absolute path on the engine's machine, TARGET an absolute path in the container.",
            )
    if settings.host:
        try:
            check_address(settings.host)
        except UsageError as error:
            context.problems.error(entries["host"], f"{key}.host", str(error))
    return settings


def _is_mount(text: str) -> bool:
    source, _, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    named = bool(source) and not source.startswith((".", "~"))
    return named and ("/" not in source or source.startswith("/")) and target.startswith("/") and mode in ("", "ro")


def _stop_timeout_s(mapping: Mapping, key: str, context: Context) -> int | None:
    node = mapping.entries.get("stop_timeout")
    if node is None or is_null(node):
        return None
    seconds = seconds_in(node.text) if isinstance(node, Scalar) else None
    if not seconds:
        context.problems.error(node, key, f"is {shown(node)}; it must be a time such as 45s.")
    return seconds
