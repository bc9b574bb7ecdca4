"""Sockets of services that start programs for whoever may connect: container engines, and what manages the services of
the machine or of a user. A script that reaches one is not confined: what it has started there is no child of its own.

No sandbox closes them. Landlock knows no rule for connecting to sockets in the file system, and they lie in folders of
which scripts need the rest.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

_OF_MACHINE = (
    "docker.sock", "containerd/containerd.sock", "k3s/containerd/containerd.sock", "podman/podman.sock",
    "crio/crio.sock", "buildkit/buildkitd.sock", "incus/unix.socket", "lxd.socket",
    "libvirt/libvirt-sock", "systemd/private",
)  # fmt: skip
"""Below /run. Whoever may connect becomes root by them."""
_ROOTS_OWN = ("dbus/system_bus_socket",)
"""Below /run. All users may connect, and what is behind it obeys root."""
_OF_USER = ("bus", "systemd/private", "docker.sock", "podman/podman.sock")
"""Below /run/user/<user>: services of the user start programs outside of any sandbox."""


def service_sockets(*, job_users: bool = False, run: Path = Path("/run"), user: int | None = None) -> list[str]:
    """Those to which a script may connect. `job_users`: each has a user without groups. `user`: of the agent, if it is
    not that of this process.
    """
    user = os.geteuid() if user is None else user
    found = [run / name for name in _OF_MACHINE]
    if not job_users:
        found += [run / "user" / str(user) / name for name in _OF_USER]
        found += [run / name for name in _ROOTS_OWN if user == 0]
    return [str(path) for path in found if _may_connect(path, job_users=job_users)]


def in_words(sockets: Sequence[str]) -> str:
    """What follows from them, as a part of a sentence."""
    return (
        f"scripts may have {' and '.join(sockets)} start programs that nothing confines (start the agent as a user who "
        "may not open it, or with --job-users; or do not mount it into the agent's container)"
    )


def _may_connect(path: Path, *, job_users: bool) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    if not stat.S_ISSOCK(mode):
        return False
    return bool(mode & stat.S_IWOTH) if job_users else os.access(path, os.W_OK)
