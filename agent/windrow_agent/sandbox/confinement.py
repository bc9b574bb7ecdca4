"""Confines this process, and all that it starts, to the paths that it is given: Landlock, by its three system calls.

It runs in the user's interpreter (Python 3.7 or newer, standard library only), where `launch.py` imports it by its
folder. The agent imports it to ask what the kernel can do.

A policy is a document (docs/contracts.md, section 4):

- `read`: files and folders to read, with everything below them. `execute`: the same, and programs in them may be
  started. `write`: also to write, make, rename and remove what is below. `device`: files of devices to read, write and
  control. These are paths without links, as the agent has checked them: what does not exist, or has a link on its way
  by now, is left out.
- `public`: folders to read, of which only what every user may read is given, as far as that is so when the process is
  confined: what else lies there are secrets of the host, which root could read.
- `all`: everything that there is below, to do with it whatever this user may. `/proc/self` is the folder of the process
  that is confined.
- `closed`: folders of Windrow's. A folder of `read`, `execute` or `all` that holds one of them is given without it: the
  entries beside it are given one by one. Of a folder of `all` that does, the names can be listed. `closed_devices`: the
  same, of devices in `/dev`.
- `abi`: the least version of Landlock that will do; 0: go on without.

Invariants:

1. A process in which `confine` has returned more than 0 can reach nothing else, and neither can its children. It
   cannot be undone.
2. Nothing is given that leads to a device's number: no process can make device files.
3. Signals, abstract sockets (ABI 6), the memory and the environment of processes outside are out of reach.
4. Root keeps no right by which it could look into other processes or change the system, only those over files and
   users.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
"""The flag of _CREATE_RULESET that asks for the version."""
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE, MAKE_CHAR, MAKE_DIR = (1 << bit for bit in range(8))
MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(8, 16))
_OF_ABI = {1: (1 << 13) - 1, 2: REFER, 3: TRUNCATE, 5: IOCTL_DEV}
"""The rights that came with each version."""
_MOVING_ABI = 2
"""Before this version, a confined process moves no file to another folder, whatever it is given."""
_SCOPED_ABI = 6
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2

_OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
_RIGHTS = {
    "read": READ_FILE | READ_DIR,
    "execute": READ_FILE | READ_DIR | EXECUTE,
    "write": ((1 << 15) - 1) & ~(MAKE_CHAR | MAKE_BLOCK),
    "device": READ_FILE | WRITE_FILE | READ_DIR | TRUNCATE | IOCTL_DEV,
    "list": READ_DIR,
    "all": ((1 << 16) - 1) & ~(MAKE_CHAR | MAKE_BLOCK),
}

_CAPBSET_READ, _CAPBSET_DROP, _CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL = 23, 24, 47, 4
_CAPABILITY_VERSION_3 = 0x20080522
_KEPT_CAPABILITIES = sum(1 << number for number in (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 14, 23, 24, 29, 31))
"""CAP_CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE,
IPC_LOCK, SYS_NICE, SYS_RESOURCE, AUDIT_WRITE and SETFCAP. With CAP_SYS_ADMIN or CAP_PERFMON, a process may read the
environment of any other, whatever Landlock says. With CAP_NET_RAW, it reads the packets of all others, and cuts their
connections by packets that it forges: such as that of the agent to its master, for as long as it likes.
"""
_SETFCAP = 1 << 31
"""Not kept where a script reaches only what it is given: no program that it leaves has rights (`system_calls`)."""

_SCAN_MAX = 10000
"""The most entries of a folder that are given one by one."""


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Capabilities(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


class CannotConfine(Exception):
    """The process is not confined; the text says what is missing."""


class _RulesetAttributes(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("rights", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def _syscall(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    """Raises OSError."""
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def kernel_abi() -> int:
    """The version of Landlock that this process may use; 0 if there is none."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return _syscall(libc, _CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except (OSError, AttributeError):
        return 0


def handled_rights(abi: int) -> int:
    """All rights to files that a version knows, and that are refused where no rule gives them."""
    return sum(rights for since, rights in _OF_ABI.items() if since <= abi)


def confine(policy: dict[str, Any]) -> int:
    """Confines this process; returns the version of Landlock that does it, 0 if the policy can do without. Raises
    CannotConfine.
    """
    abi = kernel_abi()
    if abi < policy["abi"]:
        raise CannotConfine(missing(abi, policy["abi"]))
    if abi < (_MOVING_ABI if policy.get("all") else 1):
        return 0
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        ruleset = _ruleset(libc, abi)
        try:
            _add_rules(libc, ruleset, handled_rights(abi), policy)
            _drop_capabilities(libc, _KEPT_CAPABILITIES if policy.get("all") else _KEPT_CAPABILITIES & ~_SETFCAP)
            if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
            _syscall(libc, _RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        finally:
            os.close(ruleset)
    except (OSError, AttributeError) as error:
        raise CannotConfine(f"the kernel refused it: {error}") from error
    return abi


def _drop_capabilities(libc: ctypes.CDLL, kept_ones: int) -> None:
    """Raises OSError."""
    for number in range(64):
        if not kept_ones >> number & 1:
            if libc.prctl(_CAPBSET_READ, number, 0, 0, 0) < 0:
                break
            # Fails without CAP_SETPCAP; then programs give no rights anyway (PR_SET_NO_NEW_PRIVS).
            libc.prctl(_CAPBSET_DROP, number, 0, 0, 0)
    libc.prctl(_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, held = _CapabilityHeader(_CAPABILITY_VERSION_3, 0), (_Capabilities * 2)()
    if libc.capget(ctypes.byref(header), held) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    for half in range(2):
        kept = kept_ones >> 32 * half & 0xFFFFFFFF
        held[half].effective &= kept
        held[half].permitted &= kept
        held[half].inheritable &= kept
    if libc.capset(ctypes.byref(header), held) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def missing(abi: int, wanted: int) -> str:
    """What a kernel with this version lacks."""
    if not abi:
        return (
            "the kernel has no Landlock, or a container's seccomp profile or the boot options (lsm=) keep it away "
            "(cat /sys/kernel/security/lsm)"
        )
    return f"the kernel has version {abi} of Landlock; {wanted} is needed"


def _ruleset(libc: ctypes.CDLL, abi: int) -> int:
    scoped = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if abi >= _SCOPED_ABI else 0
    attributes = _RulesetAttributes(handled_rights(abi), 0, scoped)
    # A kernel refuses a structure that is longer than its own, unless the rest is zero.
    size = ctypes.sizeof(attributes) if scoped else 8
    return _syscall(libc, _CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0))


def _add_rules(libc: ctypes.CDLL, ruleset: int, handled: int, policy: dict[str, Any]) -> None:
    closed = [os.path.realpath(path) for path in policy["closed"]] + policy.get("closed_devices", [])
    given = set()
    for path in policy.get("public", ()):
        for entry in public(path, closed)[0]:
            _add_rule(libc, ruleset, handled & _RIGHTS["execute"], entry)
    for kind in ("write", "device", "execute", "read", "list", "all"):
        paths = policy.get(kind, ())
        if kind == "execute":
            paths = list(paths) + [os.path.realpath(path) for path in _own_python()]
        for given_path in paths:
            path = f"/proc/{os.getpid()}" if given_path == "/proc/self" else given_path
            if kind in ("execute", "read", "all"):
                if kind == "all":
                    for above in folders_above(closed, path):
                        _add_rule(libc, ruleset, handled & _RIGHTS["list"], above)
                for entry in around(path, closed):
                    if (entry, kind) not in given:
                        given.add((entry, kind))
                        _add_rule(libc, ruleset, handled & _RIGHTS[kind], entry)
            else:
                _add_rule(libc, ruleset, handled & _RIGHTS[kind], path)


def _add_rule(libc: ctypes.CDLL, ruleset: int, rights: int, path: str) -> None:
    try:
        parent = _open_without_links(path)
    except OSError:
        # It is not there, this user cannot reach it anyway, or a link has been laid on the way since it was checked.
        return
    try:
        mode = os.fstat(parent).st_mode
        if stat.S_ISLNK(mode):
            return
        if not stat.S_ISDIR(mode):
            rights &= _OF_FILES
        if rights:
            rule = _PathBeneath(rights, parent)
            _syscall(
                libc,
                _ADD_RULE,
                ctypes.c_int(ruleset),
                ctypes.c_int(_PATH_BENEATH),
                ctypes.byref(rule),
                ctypes.c_uint32(0),
            )
    finally:
        os.close(parent)


def _open_without_links(path: str) -> int:
    """Opens what an absolute path names, part by part; the last one may be a link, which is opened itself. Raises
    OSError.
    """
    parts = [part for part in path.split("/") if part]
    folder = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
    holder = os.open("/", folder)
    for number, part in enumerate(parts):
        flags = folder if number < len(parts) - 1 else os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            below = os.open(part, flags, dir_fd=holder)
        finally:
            os.close(holder)
        holder = below
    return holder


def around(path: str, closed: list[str]) -> list[str]:
    """The path itself; or, if it holds a closed one, the entries in it that hold none. All paths are real ones."""
    inside = {one for one in closed if one != path and is_below(one, path)}
    if not inside:
        return [path]
    above = set()
    for one in inside:
        holder = os.path.dirname(one)
        while holder != path and holder not in above:
            above.add(holder)
            holder = os.path.dirname(holder)
    found: list[str] = []
    waiting = [path]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in itertools.islice(entries, _SCAN_MAX):
                    if entry.path in inside or entry.is_symlink():
                        continue
                    (waiting if entry.path in above else found).append(entry.path)
        except OSError:
            continue
    return found


def public(folder: str, closed: list[str]) -> tuple[list[str], bool]:
    """What every user may read below a folder, and that is not closed; and whether that is all there is: then it is the
    folder itself. Links are left out: what they lead to counts. All paths are real ones.
    """
    order, content = [folder], {}
    for place in order:
        content[place] = _public_in(place, closed)
        order += content[place][1]
    whole: dict[str, bool] = {}
    found: dict[str, list[str]] = {}
    for place in reversed(order):
        files, folders, is_all = content.pop(place)
        whole[place] = is_all and all(whole[below] for below in folders)
        given = [found.pop(below) for below in folders]
        found[place] = [place] if whole[place] else files + [entry for below in given for entry in below]
    return found[folder], whole[folder]


def _public_in(folder: str, closed: list[str]) -> tuple[list[str], list[str], bool]:
    """The files in a folder that every user may read, the folders, and whether that is all."""
    files, folders, is_all = [], [], folder not in closed
    try:
        entries = list(os.scandir(folder)) if is_all else []
    except OSError:
        return [], [], False
    for entry in entries:
        try:
            mode = 0 if entry.path in closed else entry.stat(follow_symlinks=False).st_mode
        except OSError:
            mode = 0
        if stat.S_ISLNK(mode):
            continue
        if stat.S_ISDIR(mode) and mode & (stat.S_IROTH | stat.S_IXOTH) == stat.S_IROTH | stat.S_IXOTH:
            folders.append(entry.path)
        elif mode & stat.S_IROTH and not stat.S_ISDIR(mode):
            files.append(entry.path)
        else:
            is_all = False
    return files, folders, is_all


def folders_above(closed: list[str], folder: str) -> set[str]:
    """The folders above closed ones, up to this folder, that are in no closed one. All paths are real ones."""
    found: set[str] = set()
    for path in closed:
        above = os.path.dirname(path)
        while is_below(above, folder) and above not in found:
            found.add(above)
            above = os.path.dirname(above)
    return {path for path in found if not any(is_below(path, one) for one in closed)}


def is_below(path: str, folder: str) -> bool:
    """Whether a path is the folder or lies below it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _own_python() -> list[str]:
    """The interpreter that runs, and where it finds modules."""
    found = [sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]
    found += [entry for entry in sys.path if entry]
    for name, module in list(sys.modules.items()):
        # Packages of setuptools that were installed as editable are found by a module of this name.
        if name.startswith("__editable___"):
            found += [str(place) for place in getattr(module, "MAPPING", {}).values()]
    return found
