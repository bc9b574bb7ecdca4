"""Asks the agent of this node, by the socket of the worker: to keep files, and for what the master has.

Files go over as open files, and come as such: neither side reads what the other may not. A request is answered when
what it hands in is durable, and asked again where it could not be carried out at that moment.
"""

from __future__ import annotations

import array
import json
import os
import shutil
import socket
import time

from ._told import TOLD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

    Message = Dict[str, Any]
    Take = Callable[[str, int], None]

_MESSAGE_BYTES_MAX = 192 << 10
_PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_INT_BYTES = array.array("i").itemsize


class NoAgent(RuntimeError):
    """There is no agent to ask: the script runs outside of a job, or again for a look at a failure."""


def ask(
    request: Message, files: Iterable[Tuple[str, str]] = (), brought: Optional[int] = None, take: Optional[Take] = None
) -> Tuple[Message, List[Message]]:
    """The answer, and its parts. `files`: the name and path of each that is handed in. `brought`: an open file for the
    request itself. `take`: called with the name and the open file of each that comes; perhaps again from the first one.

    Raises NoAgent, OSError for a file that cannot be read, FileNotFoundError or RuntimeError for what is refused.
    """
    handed_in = list(files)
    tries = 0
    while True:
        answer, parts = _asked(request, handed_in, brought, take)
        if answer and "again" not in answer:
            break
        time.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
        tries += 1
    if "error" in answer:
        raise (FileNotFoundError if answer["kind"] == "FileNotFoundError" else RuntimeError)(answer["error"])
    return answer, parts


def files_below(name: str, path: str) -> List[Tuple[str, str]]:
    """The name and path of a file, or of each file below a folder, sorted. `name`: of the file or folder."""
    if os.path.isfile(path):
        return [(name, path)]
    found = []
    for folder, _, files in os.walk(path):
        below = os.path.relpath(folder, path)
        prefix = name if below == "." else name + "/" + below.replace(os.sep, "/")
        found += [((prefix + "/" + file).lstrip("/"), os.path.join(folder, file)) for file in files]
    return sorted(found)


def bring(request: Message, folder: str) -> None:
    """Copies the files that the agent opens for a request into a folder of the worker, unless they are there. Raises as
    `ask`.
    """
    if os.path.exists(folder):
        return
    begun = "%s.%d" % (folder, os.getpid())
    shutil.rmtree(begun, ignore_errors=True)

    def take(file: str, descriptor: int) -> None:
        target = os.path.join(begun, file)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(descriptor, "rb", closefd=False) as source, open(target, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)

    os.makedirs(begun)
    ask(request, take=take)
    try:
        os.rename(begun, folder)
    except OSError:
        shutil.rmtree(begun, ignore_errors=True)  # another process of this worker was faster


def readable(path: str) -> bool:
    """Whether this process can read a file or folder."""
    # Tried: to a confined process, os.access says what its user may.
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _asked(
    request: Message, files: List[Tuple[str, str]], brought: Optional[int], take: Optional[Take]
) -> Tuple[Message, List[Message]]:
    """One try. The answer is empty if the connection ends without one."""
    parts = []  # type: List[Message]
    with _connected() as connection:
        try:
            _send(connection, request, brought)
            for name, path in files:
                with open(path, "rb") as file:
                    _send(connection, {"name": name}, file.fileno())
                answer, _ = _receive(connection)
                if "kept" not in answer:
                    return answer, parts
            if request["do"] in ("keep", "register"):
                _send(connection, {"end": True})
            while True:
                answer, descriptor = _receive(connection)
                part = answer.get("part")
                if part is None:
                    return answer, parts
                try:
                    if descriptor is not None and take is not None:
                        take(part["file"], descriptor)
                finally:
                    if descriptor is not None:
                        os.close(descriptor)
                parts.append(part)
                _send(connection, {})
        except BrokenPipeError:
            # What the agent had to say may be there still.
            return _receive(connection)[0], parts


def _connected() -> socket.socket:
    """Raises NoAgent."""
    path = TOLD["requests_path"]
    if not path:
        raise NoAgent("This script runs outside of a job of Windrow: nothing keeps what it hands in")
    # By the descriptor of its folder: the name of a socket has at most 107 bytes.
    try:
        folder = os.open(os.path.dirname(path), getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise NoAgent("The agent of this node cannot be asked: %s" % error) from error
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect("/proc/self/fd/%d/%s" % (folder, os.path.basename(path)))
    except OSError as error:
        connection.close()
        raise NoAgent("The agent of this node cannot be asked: %s" % error) from error
    finally:
        os.close(folder)
    return connection


def _send(connection: socket.socket, message: Message, descriptor: Optional[int] = None) -> None:
    data = json.dumps(message).encode()
    if len(data) > _MESSAGE_BYTES_MAX:
        raise ValueError("The words of the request have %d bytes; %d are the most" % (len(data), _MESSAGE_BYTES_MAX))
    rights = [] if descriptor is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
    connection.sendmsg([data], rights)


def _receive(connection: socket.socket) -> Tuple[Message, Optional[int]]:
    """A message, and the open file that it brings; an empty one at the end."""
    try:
        data, rights, _, _ = connection.recvmsg(
            _MESSAGE_BYTES_MAX, socket.CMSG_SPACE(_INT_BYTES), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
        )
    except ConnectionResetError:
        return {}, None
    found = array.array("i")
    for level, kind, content in rights:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(content[: len(content) - len(content) % _INT_BYTES])
    return json.loads(data.decode("utf-8", "surrogatepass")) if data else {}, found[0] if found else None
