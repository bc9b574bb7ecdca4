"""What processes wrote, call by call, and what a disk may hold of it after a loss of power at any moment.

Real processes run under strace, with all their threads and children. Each call that changes a file or a name, or syncs
one, becomes a `Change`. `Disk` replays them up to a moment, and `Disk.leave` writes what a machine may find then: what
was synced is there. Of the rest, each write may be there, be missing or be torn, whatever came before or after it, and
each change of a name may be missing if its folder was not synced since.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "open,openat,openat2,creat,write,pwrite64,writev,pwritev,pwritev2,copy_file_range,sendfile,ftruncate,truncate,"
    "fallocate,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,fsync,fdatasync,syncfs,sync,"
    "lseek,dup,dup2,dup3,fcntl,clone,clone3,fork,vfork"
)
STRACE = ("strace", "-D", "-ff", "-ttt", "-y", "-xx", "-v", "-s", "1000000000", "--seccomp-bpf", "-e", "signal=none")
SECTOR = 512
WRITTEN_WITHIN_S = 60.0
_LINE = re.compile(r"(\d+\.\d+) (\w+)\((.*)\)\s+= (\d+)(?:<((?:\\x..)*)>)?[^<>]*$", re.DOTALL)
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_PLACE = re.compile(r"(\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


def can_trace() -> bool:
    """Whether processes can be traced here."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "-e", "trace=none", "true"], check=False).returncode == 0


def tracing(folder: Path) -> list[str]:
    """What stands before a command whose calls are to be written to a folder."""
    folder.mkdir(exist_ok=True)
    return [*STRACE, "-e", f"trace={CALLS}", "-o", str(folder / "call")]


@dataclass(slots=True)
class Change:
    """One call. `kind`: write, cut, sync, sync all, make, make folder, link, rename or remove."""

    at: float
    kind: str
    path: str
    other: str = ""
    """The second name of a link or rename."""
    offset: int = 0
    content: bytes = b""


@dataclass(slots=True)
class _Open:
    """What a descriptor stands for."""

    path: str
    position: int = 0
    appends: bool = False


class _Calls:
    """Turns the lines of one traced program into changes below a folder."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self._tables: dict[int, dict[int, _Open]] = {}

    def changes(self, folders: Sequence[Path]) -> list[Change]:
        lines = []
        for folder in folders:
            for file in folder.iterdir():
                thread = int(file.name.rpartition(".")[2])
                for text in file.read_text("ascii").splitlines():
                    if (found := _LINE.match(text)) is not None:
                        lines.append((float(found[1]), thread, found[2], found[3], int(found[4]), found[5] or ""))
        lines.sort(key=lambda line: line[0])
        found_changes: list[Change] = []
        for at, thread, name, arguments, result, place in lines:
            table = self._tables.setdefault(thread, {})
            found_changes += self._of(at, table, name, arguments, result, _plain(place))
        return found_changes

    def _of(
        self, at: float, table: dict[int, _Open], name: str, arguments: str, result: int, place: str
    ) -> Iterator[Change]:
        if name in ("clone", "clone3", "fork", "vfork"):
            self._tables[result] = table if "CLONE_FILES" in arguments else dict(table)
            return
        places = [(number, _plain(path)) for number, path, _ in _PLACE.findall(arguments)]
        texts = [_bytes(text) for text in _TEXT.findall(arguments)]
        if name.startswith(("open", "creat")):
            table[result] = _Open(place, appends="O_APPEND" in arguments)
            if self._is_below(place) and ("O_CREAT" in arguments or "O_TRUNC" in arguments or name == "creat"):
                yield Change(at, "make", place)
                if "O_TRUNC" in arguments or name == "creat":
                    yield Change(at, "cut", place)
            return
        if name in ("dup", "dup2", "dup3") or (name == "fcntl" and "F_DUPFD" in arguments):
            if (opened := table.get(int(places[0][0]))) is not None:
                table[result] = opened
            return
        if name == "lseek":
            if (opened := table.get(int(places[0][0]))) is not None:
                opened.position = result
            return
        if name in ("rename", "renameat", "renameat2", "link", "linkat"):
            old, new = self._named(places, texts)
            if self._is_below(old) or self._is_below(new):
                yield Change(at, "link" if name.startswith("link") else "rename", old, new)
            return
        if name in ("unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"):
            (path,) = self._named(places, texts)
            if self._is_below(path):
                yield Change(at, "make folder" if name.startswith("mkdir") else "remove", path)
            return
        if name in ("sync", "syncfs"):
            yield Change(at, "sync all", self._root)
            return
        if not places or not self._is_below(places[0][1]) or name == "fcntl":
            if name in ("copy_file_range", "sendfile") and self._is_below(places[-1][1]):
                raise NotImplementedError(f"{name} from outside of the folder")
            return
        yield from self._content(at, table, name, arguments, result, places, texts)

    def _content(
        self,
        at: float,
        table: dict[int, _Open],
        name: str,
        arguments: str,
        result: int,
        places: list[tuple[str, str]],
        texts: list[bytes],
    ) -> Iterator[Change]:
        path = places[0][1]
        opened = table.setdefault(int(places[0][0]), _Open(path))
        if name in ("fsync", "fdatasync"):
            yield Change(at, "sync", path)
        elif name in ("ftruncate", "truncate"):
            yield Change(at, "cut", path, offset=int(arguments.rpartition(", ")[2]))
        elif name == "fallocate":
            return  # it holds zeros, as what is not written does
        elif name in ("write", "writev"):
            offset = -1 if opened.appends else opened.position
            opened.position += result
            yield Change(at, "write", path, offset=offset, content=b"".join(texts)[:result])
        elif name in ("pwrite64", "pwritev", "pwritev2"):
            offset = int(arguments.split(", ")[-2 if name == "pwritev2" else -1])
            yield Change(at, "write", path, offset=offset, content=b"".join(texts)[:result])
        elif name in ("copy_file_range", "sendfile"):
            if name == "sendfile":
                raise NotImplementedError(name)
            source, target = places[0], places[1]
            begun = re.search(r">, (?:\[(\d+)\]|NULL), \d+<", arguments)
            reading = table.setdefault(int(source[0]), _Open(source[1]))
            begin = int(begun[1]) if begun is not None and begun[1] else reading.position
            written = table.setdefault(int(target[0]), _Open(target[1]))
            # The content is that of the source at that time, which the replay knows.
            yield Change(at, "copy", target[1], source[1], written.position, f"{begin} {result}".encode())
            written.position += result

    def _named(self, places: list[tuple[str, str]], texts: list[bytes]) -> list[str]:
        """The absolute paths of names, each after the folder that it is in."""
        found = []
        for number, text in enumerate(texts):
            name = text.decode(errors="surrogateescape")
            folder = places[number][1] if number < len(places) else ""
            found.append(name if name.startswith("/") else f"{folder}/{name}")
        return [str(Path(path)) for path in found]

    def _is_below(self, path: str) -> bool:
        return path == self._root or path.startswith(f"{self._root}/")


_ENDED = "+" * 3
"""In the last line of a trace."""


def changes_below(root: Path, traces: Sequence[Path]) -> list[Change]:
    """What the traced programs changed below a folder, in the order in which it was begun. They have ended."""
    # Whoever traces writes to the end, beside the program that it traces.
    deadline = time.monotonic() + WRITTEN_WITHIN_S
    files = [file for folder in traces for file in folder.iterdir()]
    while not all(_ENDED in _tail(file) for file in files) and any(map(_is_traced, traces)):
        assert time.monotonic() < deadline, "the traces are not written to their end"
        time.sleep(0.02)
    return _Calls(root).changes(traces)


@dataclass(eq=False)
class _File:
    """A file, or a folder (`names` is not None), whatever its name is."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    waiting: list[tuple[int, bytes]] = field(default_factory=list)
    """Writes that are not synced: offset and content; a cut to a length has the offset -1 - length."""
    names: dict[str, _File] | None = None
    synced_names: dict[str, _File] = field(default_factory=dict)

    @classmethod
    def folder(cls) -> _File:
        return cls(names={})

    def write(self, offset: int, content: bytes) -> None:
        """`offset`: -1: at the end."""
        if offset < 0:
            offset = len(self.content)
        _put(self.content, offset, content)
        self.waiting.append((offset, content))

    def cut(self, length: int) -> None:
        _cut(self.content, length)
        self.waiting.append((-1 - length, b""))

    def sync(self) -> None:
        self.synced, self.waiting = bytes(self.content), []

    def left(self, chance: random.Random, share: float) -> bytes:
        """What may be found of it. `share`: how likely a write is there that was not synced."""
        content = bytearray(self.synced)
        for offset, written in self.waiting:
            if chance.random() >= share:
                continue
            if offset < 0:
                _cut(content, -1 - offset)
                continue
            if share < 1.0 and chance.random() < 0.3:
                # A sector that was not written holds what it held before.
                _cut(content, max(len(content), offset + len(written)))
                for at in range(0, len(written), SECTOR):
                    if chance.random() < 0.5:
                        _put(content, offset + at, written[at : at + SECTOR])
            else:
                _put(content, offset, written)
        return bytes(content)


_Naming = list[tuple[_File, str, "_File | None"]]
"""A change of names that happens as a whole: folder, name, and what has that name then."""


class Disk:
    """A folder as processes see it, and what of it is certain to outlive a loss of power."""

    def __init__(self, root: Path) -> None:
        """As it stands now: all of it is synced."""
        self._root = root
        self._top = _taken(root)
        self._waiting: list[_Naming] = []

    def apply(self, change: Change) -> None:
        """Carry out a change."""
        if change.kind == "sync all":
            self._sync_all()
        elif change.kind in ("make", "make folder", "link", "rename", "remove"):
            naming = self._naming(change)
            _name(naming, lambda folder: folder.names if folder.names is not None else {})
            self._waiting.append(naming)
        elif (file := self._find(change.path)) is None:
            pass  # it was removed while it was open
        elif change.kind == "sync":
            file.sync()
            due = [naming for naming in self._waiting if any(folder is file for folder, _, _ in naming)]
            self._waiting = [naming for naming in self._waiting if naming not in due]
            for naming in due:
                _name(naming, lambda folder: folder.synced_names)
        elif change.kind == "write":
            file.write(change.offset, change.content)
        elif change.kind == "cut":
            file.cut(change.offset)
        elif change.kind == "copy":
            begin, length = map(int, change.content.split())
            source = self._find(change.other)
            assert source is not None, change.other
            file.write(change.offset, bytes(source.content[begin : begin + length]))

    def leave(self, target: Path, chance: random.Random) -> None:
        """Write to a folder what a machine may find after a loss of power now."""
        share = chance.choice((0.0, 1.0, 0.5, 0.5))
        kept = [naming for naming in self._waiting if chance.random() < share]
        if chance.random() < 0.3:
            # As a file system with a journal leaves it.
            kept = self._waiting[: chance.randint(0, len(self._waiting))]
        views: dict[int, dict[str, _File]] = {}

        def names_of(folder: _File) -> dict[str, _File]:
            return views.setdefault(id(folder), dict(folder.synced_names))

        for naming in kept:
            _name(naming, names_of)

        def lay(file: _File, place: Path) -> None:
            if file.names is None:
                place.write_bytes(file.left(chance, share))
                return
            place.mkdir()
            for name, child in names_of(file).items():
                lay(child, place / name)

        lay(self._top, target)

    def _sync_all(self) -> None:
        for file in _all(self._top):
            file.sync()
        for naming in self._waiting:
            _name(naming, lambda folder: folder.synced_names)
        self._waiting = []

    def _naming(self, change: Change) -> _Naming:
        holder, name = self._find(str(Path(change.path).parent)), Path(change.path).name
        if holder is None or holder.names is None:
            return []
        file = holder.names.get(name)
        if change.kind == "make":
            return [(holder, name, _File())] if file is None else []
        if change.kind == "make folder":
            return [(holder, name, _File.folder())]
        if change.kind == "remove":
            return [(holder, name, None)]
        other = self._find(str(Path(change.other).parent))
        assert other is not None and file is not None, change
        gone: _Naming = [(holder, name, None)] if change.kind == "rename" else []
        return [*gone, (other, Path(change.other).name, file)]

    def _find(self, path: str) -> _File | None:
        found: _File | None = self._top
        for name in Path(path).relative_to(self._root).parts:
            found = None if found is None or found.names is None else found.names.get(name)
        return found


def _name(naming: _Naming, names_of: Callable[[_File], dict[str, _File]]) -> None:
    for folder, name, file in naming:
        if file is None:
            names_of(folder).pop(name, None)
        else:
            names_of(folder)[name] = file


def _taken(path: Path) -> _File:
    if path.is_dir() and not path.is_symlink():
        names = {child.name: _taken(child) for child in path.iterdir()}
        return _File(names=names, synced_names=dict(names))
    content = path.read_bytes() if path.is_file() else b""
    return _File(bytearray(content), content)


def _all(file: _File) -> Iterator[_File]:
    yield file
    for child in (file.names or {}).values():
        yield from _all(child)


def _cut(content: bytearray, length: int) -> None:
    del content[length:]
    content.extend(bytes(length - len(content)))


def _put(content: bytearray, offset: int, written: bytes) -> None:
    _cut(content, max(len(content), offset))
    content[offset : offset + len(written)] = written


def _is_traced(folder: Path) -> bool:
    """Whether a tracer still writes to a folder. One that is killed with what it traces leaves files without an end."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if os.fsencode(folder / "call") in (entry / "cmdline").read_bytes().split(b"\0"):
                    return True
    return False


def _tail(file: Path) -> str:
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - 100))
        return opened.read().decode("ascii")


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _plain(text: str) -> str:
    return _bytes(text).decode(errors="surrogateescape")
