"""Checks that a folder's file system can keep what the store needs: flock, shared memory maps, and real syncs.

Network file systems are refused: their locks may be lost or not shared, and SQLite's WAL needs one shared memory
between all processes that open it. The magic number of statfs cannot tell FUSE file systems apart (sshfs from a local
disk), so the name of the type is read from the mount table. 9p is refused although it is sometimes local (a virtual
machine's or WSL's view of its host): its shared maps cannot be trusted. virtiofs and overlay are local and pass; so do
FUSE file systems that are not named here.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from windrow_master.files.errors import NetworkFileSystem

NETWORK_TYPES = frozenset(
    (
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "coda", "ceph", "lustre", "gpfs", "beegfs",
        "orangefs", "pvfs2", "glusterfs", "ocfs2", "gfs2", "9p", "davfs", "fuse.sshfs", "fuse.glusterfs",
        "fuse.ceph", "fuse.ceph-fuse", "fuse.s3fs", "fuse.gcsfuse", "fuse.blobfuse", "fuse.blobfuse2",
        "fuse.goofys", "fuse.rclone", "fuse.mountpoint-s3", "fuse.juicefs", "fuse.seaweedfs", "fuse.davfs2",
        "fuse.cifs", "fuse.smbnetfs", "fuse.curlftpfs",
    )
)  # fmt: skip

MOUNT_TABLE = Path("/proc/self/mountinfo")
_OCTAL = re.compile(rb"\\([0-7]{3})")


def type_of(folder: Path, mount_table: Path = MOUNT_TABLE) -> str:
    """The type of the file system that holds `folder`, as mounted ("ext4", "nfs4", "fuse.sshfs"); "" when unknown."""
    try:
        lines = mount_table.read_bytes().splitlines()
    except OSError:
        return ""
    path = os.fsencode(os.path.realpath(folder))
    best, found = -1, ""
    for line in lines:
        before, separator, after = line.partition(b" - ")
        fields = before.split()
        if not separator or len(fields) < 5:
            continue
        mount = _OCTAL.sub(lambda octal: bytes([int(octal[1], 8)]), fields[4])
        # Later mounts hide earlier ones of the same place.
        holds = mount == b"/" or path == mount or path.startswith(mount + b"/")
        if holds and len(mount) >= best:
            best, found = len(mount), after.split()[0].decode(errors="replace")
    return found


def refuse_network(folder: Path, mount_table: Path = MOUNT_TABLE) -> None:
    """Raise NetworkFileSystem when `folder` is on a network file system."""
    kind = type_of(folder, mount_table)
    if kind in NETWORK_TYPES:
        raise NetworkFileSystem(
            f"The state folder {folder} is on a network file system ({kind}), where locks and shared memory cannot be "
            f"trusted and the state could be damaged. Use a folder on a local disk: --state DIR. "
            f"(Inputs and outputs may stay where they are.)"
        )
