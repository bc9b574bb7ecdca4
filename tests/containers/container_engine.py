"""The Docker engine of this machine, its Compose, and the images under test."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
BASE_IMAGE = "python:3.11-slim-bookworm"
PULL_S = 60

# Where ip, tc and iptables are, and not everybody's path leads.
os.environ["PATH"] += f"{os.pathsep}/usr/sbin{os.pathsep}/sbin"


BUILD_S = 1800.0
"""For one image. Tests have their own limits, which begin when the images are there."""


class EngineMissing(Exception):
    """Container tests cannot run here; the text says why."""


def docker(*arguments: str, check: bool = True, timeout_s: float = 300.0) -> str:
    """Run the docker command; return what it prints."""
    done = subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, errors="replace", timeout=timeout_s, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"docker {' '.join(arguments)} ended with {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout


@functools.cache
def compose_command() -> tuple[str, ...]:
    """`docker compose`, else `docker-compose`. Raises EngineMissing.

    WINDROW_COMPOSE chooses one of several, as in WINDROW_COMPOSE=docker-compose.
    """
    chosen = os.environ.get("WINDROW_COMPOSE")
    for command in (tuple(chosen.split()),) if chosen else (("docker", "compose"), ("docker-compose",)):
        if shutil.which(command[0]) and subprocess.call([*command, "version"], stdout=subprocess.DEVNULL) == 0:
            return command
    raise EngineMissing("neither `docker compose` nor `docker-compose` is installed")


def need_engine() -> None:
    """Raises EngineMissing where no engine answers."""
    if shutil.which("docker") is None:
        raise EngineMissing("there is no docker command")
    try:
        docker("info", timeout_s=30)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        raise EngineMissing(f"no Docker engine answers: {error}") from error
    compose_command()


def build_images() -> None:
    """Build the images of docker-compose.yml from this checkout, on a base image that is pulled or made.

    Raises EngineMissing where there can be no base image.
    """
    if not docker("images", "-q", BASE_IMAGE):
        try:
            docker("pull", BASE_IMAGE, timeout_s=PULL_S)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            if os.geteuid() != 0:
                raise EngineMissing(f"{BASE_IMAGE} cannot be pulled, and docker/base-image needs root") from error
            _run([str(REPOSITORY / "docker" / "base-image"), BASE_IMAGE])
    for role in ("master", "agent"):
        built = ("docker", "build", "-q", "-f", "docker/Dockerfile", "--build-arg", f"ROLE={role}")
        _run([*built, "-t", f"windrow-{role}", "."])


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, cwd=REPOSITORY, capture_output=True, text=True, errors="replace", timeout=BUILD_S, check=False
    )
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
