"""Makes this process one of the user of its job, for ever: without groups, without rights of root.

It runs in the agent's interpreter (standard library only), where `launch.py` and `start.py` import it by its folder, as
root and before any code of a job.

Invariants: after `become`, no process that this one starts is ever root or has a capability; and it can still be
looked into by root and its own user.
"""

from __future__ import annotations

import ctypes
import os

_PR_SET_DUMPABLE, _PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 4, 23, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Capabilities(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


class CannotBecome(Exception):
    """The process is not one of that user; the text says why."""


def become(user: int) -> None:
    """Changes user and group of this process, which has one thread. Raises CannotBecome."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        for number in range(64):
            if libc.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) < 0:
                break
            # Fails without CAP_SETPCAP; then programs give no rights anyway (PR_SET_NO_NEW_PRIVS).
            libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        header, none = _Header(_CAPABILITY_VERSION_3, 0), (_Capabilities * 2)()
        if libc.capset(ctypes.byref(header), none) != 0:
            raise OSError(ctypes.get_errno(), "capset")
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")
        # The kernel clears it at a change of the user: the process could not open its own files below /proc.
        libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    except (OSError, AttributeError) as error:
        raise CannotBecome(f"it cannot become user {user}: {error}") from error
    if os.getresuid() != (user,) * 3 or os.getresgid() != (user,) * 3 or os.getgroups():
        raise CannotBecome(f"it is user {os.getresuid()}, not {user}")
