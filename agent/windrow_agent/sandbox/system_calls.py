"""Forbids system calls by which a process could stop others of its user, and that Landlock does not know: a seccomp
filter, for this process and all that it starts.

`prlimit` of another process: with no processor time or no descriptors left, an agent would end. A process limits itself
as ever: it names itself by 0, as the C library does in `setrlimit`. So does the process that installs the filter, also
by its number.

It runs in the user's interpreter, as `confinement.py` does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

_SET_MODE_FILTER = 1
_SPEC_ALLOW = 4
"""Keep the processor's speculation as it is: older kernels slow a filtered process down."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where the filter finds them: the number, the architecture, and six arguments of 8 bytes each."""

_X32 = 0x40000000
_PRLIMIT: dict[str, dict[int, tuple[int, ...]]] = {
    "x86_64": {0xC000003E: (302, _X32 | 302), 0x40000003: (340,)},
    "aarch64": {0xC00000B7: (261,), 0x40000028: (369,)},
}
"""By machine and architecture (also the one of 32-bit programs): the numbers of `prlimit64`."""
_SECCOMP = {"x86_64": 317, "aarch64": 277}


def filter_program(machine: str, own: int) -> bytes:
    """The filter for a machine and a process, as struct sock_filter has it. Raises KeyError for an unknown machine."""
    # prlimit64(pid, resource, new limit, old limit): the pid and the halves of the pointer to the new limit. In 64-bit
    # calls all arguments are 8 bytes long, and the kernel reads 4 of a pid; 32-bit ones are filled with zeros.
    check = [
        (_LOAD, 0, 0, _ARGUMENTS),
        (_EQUAL, 6, 0, 0),
        (_EQUAL, 5, 0, own),
        (_LOAD, 0, 0, _ARGUMENTS + 2 * 8),
        (_EQUAL, 0, 2, 0),
        (_LOAD, 0, 0, _ARGUMENTS + 2 * 8 + 4),
        (_EQUAL, 1, 0, 0),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    program = [(_LOAD, 0, 0, _ARCHITECTURE)]
    kinds = list(_PRLIMIT[machine].items())
    for architecture, numbers in kinds:
        program.append((_EQUAL, 0, 1 + len(numbers) + 1, architecture))
        program.append((_LOAD, 0, 0, _NUMBER))
        # They lead to the check, behind the last instruction here: its place is filled in below.
        program += [(_EQUAL, -1, 0, number) for number in numbers]
        program.append((_RETURN, 0, 0, _ALLOW))
    program.append((_RETURN, 0, 0, _ALLOW))
    end = len(program)
    placed = [
        (code, end - place - 1 if yes == -1 else yes, no, value) for place, (code, yes, no, value) in enumerate(program)
    ]
    return b"".join(struct.pack("HBBI", *one) for one in placed + check)


def forbid() -> None:
    """Installs the filter; the process must have no new privileges. Raises OSError."""
    machine = os.uname().machine
    if machine not in _SECCOMP:
        raise OSError(errno.ENOSYS, f"Windrow has no seccomp filter for {machine}")
    program = filter_program(machine, os.getpid())
    libc = ctypes.CDLL(None, use_errno=True)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    header = Program(len(program) // 8, program)
    number, flags = ctypes.c_long(_SECCOMP[machine]), ctypes.c_ulong(_SPEC_ALLOW)
    if libc.syscall(number, ctypes.c_ulong(_SET_MODE_FILTER), flags, ctypes.byref(header)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
