"""`python -m windrow_agent.node`: prints what an agent could offer on this machine, and which kernel features work, as
a JSON document. For `windrow doctor` and dry runs. Each feature is tried, here or in a child process.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys

from windrow.common.hidden_process import hide_process

from windrow_agent.node import control_groups, resources
from windrow_agent.node.gpu_driver import Reading
from windrow_agent.node.gpu_watch import look_once
from windrow_agent.node.gpus import AMD, given_devices, in_first_namespace, places_of
from windrow_agent.node.kernel import become_subreaper
from windrow_agent.node.mps import pipe_folder
from windrow_agent.node.oom import OomCounter

_PR_SET_PDEATHSIG = "import ctypes, sys; sys.exit(ctypes.CDLL(None).prctl(1, 9, 0, 0, 0))"


def look() -> dict[str, object]:
    """The whole document."""
    can, how = control_groups.possible()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "cpu_count": resources.cpu_count(),
        "machine_cpu_count": os.cpu_count(),
        "memory_bytes": resources.memory_bytes(),
        "machine_memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": _gpus(),
        "sees_oom_kills": OomCounter().is_there,
        "control_groups": {"possible": can, "how": how},
        "open_files": {"soft": soft, "hard": None if hard == resource.RLIM_INFINITY else hard},
        "kernel": {
            "pidfd_open": _pidfd(),
            "PR_SET_PDEATHSIG": _pdeathsig(),
            "PR_SET_CHILD_SUBREAPER": become_subreaper(),
            "PR_SET_DUMPABLE": hide_process(),
            "SOCK_SEQPACKET": _seqpacket(),
            "memfd_create": _memfd(),
        },
    }


def _gpus() -> dict[str, object]:
    """What the driver says of the GPUs that an agent would have, and what else those who share them should know."""
    readings = look_once()
    given = given_devices(os.environ)
    if given is None and readings.vendor == "amd":
        given = given_devices(os.environ, AMD)
    if given is None:
        found = list(readings.devices)
    else:
        places = places_of(given, readings, os.environ)
        found = [one or Reading(name, at) for at, (name, one) in enumerate(zip(given, places, strict=True))]
    mps = pipe_folder(os.environ)
    return {
        "devices": [
            {
                "device": one.device or str(one.number),
                "model": one.model,
                "memory_bytes": one.memory_bytes,
                "memory_used_bytes": one.memory_used_bytes,
                "trouble": one.trouble,
            }
            for one in found
        ],
        "trouble": readings.trouble,
        "given": given is not None,
        "sees_processes": in_first_namespace(),
        "mps": None if mps is None else str(mps),
    }


def _pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _pdeathsig() -> bool:
    return subprocess.run([sys.executable, "-c", _PR_SET_PDEATHSIG], check=False).returncode == 0


def _seqpacket() -> bool:
    try:
        for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET):
            end.close()
    except OSError:
        return False
    return True


def _memfd() -> bool:
    try:
        os.close(os.memfd_create("windrow"))
    except (AttributeError, OSError):
        return False
    return True


if __name__ == "__main__":
    print(json.dumps(look()))
