"""Forbids system calls that Landlock does not know: a seccomp filter, for this process and all that it starts.

- `prlimit` of another process: with no processor time or no descriptors left, an agent would end. A process limits
  itself as ever: it names itself by 0, as the C library does in `setrlimit`. So does the process that installs the
  filter, also by its number.
- Where a script reaches only what it is given: files that are set-user-ID, whatever makes them or changes their mode. A
  script of root would leave a program in its output that makes root of whoever starts it. `openat2` and `io_uring`,
  which take the mode where no filter looks, do not exist there.

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

_LOAD, _EQUAL, _HAS_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Where the filter finds them: the number, the architecture, and six arguments of 8 bytes each."""
_SET_USER = 0o4000
_MAKES = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE: without them, a call has no mode, and its argument is anything."""

_X32 = 0x40000000
_X86_64, _I386, _AARCH64, _ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028
_ARCHITECTURES = {"x86_64": (_X86_64, _I386), "aarch64": (_AARCH64, _ARM)}
"""Of each machine, also the one of 32-bit programs."""
_PRLIMIT = {_X86_64: 302, _I386: 340, _AARCH64: 261, _ARM: 369}
"""The number of prlimit64."""
_MODES = {
    _X86_64: {90: 1, 91: 1, 268: 2, 452: 2, 85: 1, 133: 1, 259: 2},
    _I386: {15: 1, 94: 1, 306: 2, 452: 2, 8: 1, 14: 1, 297: 2},
    _AARCH64: {52: 1, 53: 2, 452: 2, 33: 2},
    _ARM: {15: 1, 94: 1, 333: 2, 452: 2, 8: 1, 14: 1, 324: 2},
}
"""The numbers of chmod, fchmod, fchmodat, fchmodat2, creat, mknod and mknodat, each with the place of its mode."""
_OPENS = {_X86_64: {2: 1, 257: 2}, _I386: {5: 1, 295: 2}, _AARCH64: {56: 2}, _ARM: {5: 1, 322: 2}}
"""Of open and openat, each with the place of its flags, behind which the mode is."""
_ABSENT = (437, 425)
"""openat2 and io_uring_setup: everywhere."""
_SECCOMP = {"x86_64": 317, "aarch64": 277}


class _Program:
    """Instructions of struct sock_filter, with names for the places that they lead to."""

    def __init__(self) -> None:
        self._instructions: list[tuple[int, object, object, int]] = []
        self._places: dict[str, int] = {}

    def add(self, code: int, value: int, yes: object = 0, no: object = 0) -> None:
        """`yes`, `no`: how many instructions are skipped, or the name of a place."""
        self._instructions.append((code, yes, no, value))

    def place(self, name: str) -> None:
        """What follows has this name."""
        self._places[name] = len(self._instructions)

    def packed(self) -> bytes:
        """All of it. A jump leads forward, over at most 255 instructions."""
        packed = []
        for at, (code, yes, no, value) in enumerate(self._instructions):
            over = [self._places[to] - at - 1 if isinstance(to, str) else to for to in (yes, no)]
            packed.append(struct.pack("HBBI", code, over[0], over[1], value))
        return b"".join(packed)


def filter_program(machine: str, own: int, *, set_user: bool = False) -> bytes:
    """The filter for a machine and a process. `set_user`: files that are set-user-ID are forbidden, too. Raises
    KeyError for an unknown machine.
    """
    program = _Program()
    program.add(_LOAD, _ARCHITECTURE)
    places: set[tuple[str, int]] = set()
    for architecture in _ARCHITECTURES[machine]:
        beyond = f"behind {architecture}"
        program.add(_EQUAL, architecture, 0, beyond)
        program.add(_LOAD, _NUMBER)
        wanted = [(_PRLIMIT[architecture], ("limits", 0))]
        if set_user:
            wanted += [(number, ("mode", at)) for number, at in _MODES[architecture].items()]
            wanted += [(number, ("flags", at)) for number, at in _OPENS[architecture].items()]
            wanted += [(number, ("absent", 0)) for number in _ABSENT]
        for number, place in wanted:
            places.add(place)
            for one in (number, _X32 | number) if architecture == _X86_64 else (number,):
                program.add(_EQUAL, one, f"{place[0]} {place[1]}")
        program.add(_RETURN, _ALLOW)
        program.place(beyond)
    program.add(_RETURN, _ALLOW)
    for kind, at in sorted(places, key=lambda place: (place[0] != "flags", place)):
        program.place(f"{kind} {at}")
        if kind == "flags":
            # It leads to the mode, which is the next argument.
            program.add(_LOAD, _ARGUMENTS + 8 * at)
            program.add(_HAS_BITS, _MAKES, 1)
            program.add(_RETURN, _ALLOW)
            program.add(_LOAD, _ARGUMENTS + 8 * (at + 1))
            program.add(_HAS_BITS, _SET_USER, "refuse", "allow")
        elif kind == "mode":
            program.add(_LOAD, _ARGUMENTS + 8 * at)
            program.add(_HAS_BITS, _SET_USER, "refuse", "allow")
        elif kind == "absent":
            program.add(_RETURN, _FAIL | errno.ENOSYS)
        else:
            # prlimit64(pid, resource, new limit, old limit): the pid and the halves of the pointer to the new limit. In
            # 64-bit calls all arguments are 8 bytes long, and the kernel reads 4 of a pid; 32-bit ones are filled with
            # zeros.
            program.add(_LOAD, _ARGUMENTS)
            program.add(_EQUAL, 0, "allow")
            program.add(_EQUAL, own, "allow")
            program.add(_LOAD, _ARGUMENTS + 2 * 8)
            program.add(_EQUAL, 0, 0, "refuse")
            program.add(_LOAD, _ARGUMENTS + 2 * 8 + 4)
            program.add(_EQUAL, 0, "allow", "refuse")
    program.place("refuse")
    program.add(_RETURN, _FAIL | errno.EPERM)
    program.place("allow")
    program.add(_RETURN, _ALLOW)
    return program.packed()


def forbid(*, set_user: bool = False) -> None:
    """Installs the filter; the process must have no new privileges. `set_user`: as of `filter_program`. Raises
    OSError.
    """
    machine = os.uname().machine
    if machine not in _SECCOMP:
        raise OSError(errno.ENOSYS, f"Windrow has no seccomp filter for {machine}")
    program = filter_program(machine, os.getpid(), set_user=set_user)
    libc = ctypes.CDLL(None, use_errno=True)

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    header = Program(len(program) // 8, program)
    number, flags = ctypes.c_long(_SECCOMP[machine]), ctypes.c_ulong(_SPEC_ALLOW)
    if libc.syscall(number, ctypes.c_ulong(_SET_MODE_FILTER), flags, ctypes.byref(header)) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
