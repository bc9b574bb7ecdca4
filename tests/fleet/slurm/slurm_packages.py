"""Where Slurm's programs are: those of this machine, or Debian's, unpacked in a folder of the tests.

Nothing is installed: the packages that this machine lacks are downloaded and unpacked, which takes no rights.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from kept_between_runs import kept_folder

PACKAGES = ("slurm-wlm", "munge", "slurmdbd", "mariadb-server")
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "mariadb-install-db", "sbatch", "squeue", "sacct")
_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


class SlurmMissing(Exception):
    """There is no Slurm, and none can be got; says why."""


class Programs(NamedTuple):
    """Slurm, munge and MariaDB. `root`: the folder that holds their `usr`; "/": they are installed."""

    root: Path
    folders: tuple[str, ...]
    """Where the programs are, in the order of PATH."""

    @property
    def plugins(self) -> str:
        """Slurm's PluginDir; "": the one it was built with. A machine may have some of the packages."""
        if self.root == Path("/"):
            return ""
        return ":".join(str(found) for root in (self.root, Path("/")) for found in root.glob("usr/lib/*/slurm-wlm"))

    def path_of(self, program: str) -> str:
        """Where a program is."""
        found = shutil.which(program, path=os.pathsep.join(self.folders))
        if found is None:
            raise SlurmMissing(f"{program} is not in {', '.join(self.folders)}")
        return found


def programs() -> Programs:
    """Slurm's programs. Raises SlurmMissing."""
    if all(shutil.which(name, path=os.pathsep.join(_SYSTEM_FOLDERS)) for name in PROGRAMS):
        return Programs(Path("/"), _SYSTEM_FOLDERS)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SlurmMissing(f"Slurm is not installed, and there is no apt-get that would get {', '.join(PACKAGES)}")
    folder = kept_folder() / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "ready").exists():
            for made in ("root", "bin", "apt", "packages"):
                shutil.rmtree(folder / made, ignore_errors=True)
            _unpack(folder)
            (folder / "ready").touch()
    return Programs(folder / "root", (str(folder / "bin"), *_SYSTEM_FOLDERS))


def _unpack(folder: Path) -> None:
    root, apt, packages, binaries = (folder / name for name in ("root", "apt", "packages", "bin"))
    for made in (root, apt / "lists" / "partial", apt / "cache" / "archives" / "partial", packages, binaries):
        made.mkdir(parents=True)
    options = [
        *("-o", f"Dir::State::Lists={apt / 'lists'}", "-o", f"Dir::Cache={apt / 'cache'}"),
        *("-o", "Debug::NoLocking=1", "-o", "APT::Sandbox::User="),
    ]
    _run(["apt-get", *options, "update"], packages)
    planned = _run(["apt-get", *options, "install", "--simulate", "--no-install-recommends", *PACKAGES], packages)
    lacking = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", planned, re.MULTILINE)
    _run(["apt-get", *options, "download", *(f"{name}={version}" for name, version in lacking)], packages)
    for package in sorted(packages.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(package), str(root)], packages)
    shutil.rmtree(packages)
    shutil.rmtree(apt)
    libraries = [str(path) for pattern in ("usr/lib/*-linux-gnu", "lib/*-linux-gnu") for path in root.glob(pattern)]
    libraries += [str(path) for path in root.glob("usr/lib/*/slurm-wlm")]
    for program in (*root.glob("usr/bin/*"), *root.glob("usr/sbin/*")):
        # Debian's alternatives, which nobody has installed here. Slurm goes by the names with which it is started.
        named = program.with_name(program.name.removesuffix("-wlm"))
        if not named.exists():
            named.symlink_to(program.name)
        started = binaries / named.name
        started.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{":".join(libraries)}" exec "{named}" "$@"\n')
        started.chmod(0o755)


def _run(words: list[str], folder: Path) -> str:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        raise SlurmMissing(f"Slurm is not installed, and {words[0]} cannot get it: {done.stderr.strip()[-500:]}")
    return done.stdout
