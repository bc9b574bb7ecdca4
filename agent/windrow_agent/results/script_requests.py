"""Carries out what scripts ask by the socket of their worker (docs/contracts.md, section 4).

Each connection is one request. A script waits for the answer, so what it has handed in is durable before the result of
its mini-batch can be. Where the master is away, the script is told to ask again: it still has what it hands in.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

import grpc
from windrow.common.beneath import Folder
from windrow.common.journal import Condition, Repeated
from windrow.common.threads import in_thread
from windrow.rpc import errors
from windrow.rpc.v1 import asset_service_pb2 as assets
from windrow.rpc.v1 import run_files_pb2 as rpc

from windrow_agent.link import Link, LinkLost, is_passing
from windrow_agent.workers.script_socket import comes_from

MESSAGE_BYTES_MAX = 192 << 10
CONNECTIONS_MAX = 256
WORKER_CONNECTIONS_MAX = 16
"""So that the scripts of one worker leave room for those of others."""
ACCEPTED_AT_ONCE = 16
"""Connections that are looked at before the agent does something else."""
SILENT_S = 60.0
"""A script that says or takes nothing for so long, while the agent waits for it, has gone."""
_CHUNK_BYTES = 1 << 20
_FILES_AT_ONCE = 1


class MayShow(Protocol):
    """Whether the files of a model or data asset may be opened for a script. `place`: where its path leads;
    `handed_in`: whether a script has handed it in.
    """

    def __call__(self, path: str, place: str, /, *, handed_in: bool) -> bool: ...


WhatChanged = Callable[[str], str]
"""Takes the path of a registered model; returns how its content is not what was registered, in words."""


class RequestRefused(Exception):
    """The request cannot be carried out; the text says why. `kind`: which of Python's errors it is for the script."""

    def __init__(self, message: str, kind: str = "") -> None:
        super().__init__(message)
        self.kind = kind


class ScriptRequests:
    """`link` waits for a connection over which the node is admitted. `changed` blocks."""

    def __init__(self, link: Callable[[], asyncio.Future[Link]], may_show: MayShow, changed: WhatChanged) -> None:
        self._link = link
        self._may_show = may_show
        self._changed = changed
        self._tasks: dict[asyncio.Task[None], int] = {}
        """With the process of the worker that each is for."""
        self._repeated = Repeated()
        self._waits = Condition(
            logging.WARNING,
            "what a script hands in does not reach the master",
            "what scripts hand in reaches the master again",
            from_times=3,
        )

    def accept(self, step_id: int, listening: socket.socket, worker_pid: int, user: int | None) -> None:
        """Take connections that wait at the socket of a worker, if they come from its processes. `user`: of its job, if
        that has one. Further ones are taken at the next call: the socket is still readable.
        """
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            of_worker = sum(pid == worker_pid for pid in self._tasks.values())
            if len(self._tasks) >= CONNECTIONS_MAX or of_worker >= WORKER_CONNECTIONS_MAX:
                # The script asks again.
                connection.close()
                continue
            if not comes_from(connection, worker_pid, user):
                self._repeated.say(
                    step_id,
                    logging.WARNING,
                    "a process that is not of this worker asks by its socket: refused",
                    step=step_id,
                )
                connection.close()
                continue
            connection.setblocking(False)
            task = asyncio.create_task(self._serve(step_id, _Connection(connection)))
            self._tasks[task] = worker_pid
            task.add_done_callback(self._tasks.pop)

    def cancel(self) -> None:
        """Ends all connections, as the agent ends."""
        for task in self._tasks:
            task.cancel()

    async def _serve(self, step_id: int, script: _Connection) -> None:
        try:
            answer = await self._answer(step_id, script)
            if len(json.dumps(answer)) > MESSAGE_BYTES_MAX:
                answer = {"error": f"the answer is larger than {MESSAGE_BYTES_MAX >> 10} KiB", "kind": ""}
            await script.send(answer)
        except OSError:
            pass  # the script has gone
        finally:
            script.close()

    async def _answer(self, step_id: int, script: _Connection) -> dict[str, Any]:
        try:
            request = await script.receive()
            answer = await self._carried_out(step_id, request, script)
        except RequestRefused as refused:
            return {"error": str(refused), "kind": refused.kind}
        except LinkLost as lost:
            self._waits.goes_on(why=str(lost))
            return {"again": True}
        except grpc.aio.AioRpcError as error:
            failure = errors.read_failure(error)
            if is_passing(failure):
                self._waits.goes_on(why=f"{failure.code.name} {failure.message}")
                return {"again": True}
            kind = "FileNotFoundError" if failure.code == grpc.StatusCode.NOT_FOUND else ""
            return {"error": failure.message, "kind": kind}
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            return {"error": f"the agent does not understand the request: {error!r}", "kind": ""}
        self._waits.is_over()
        return answer

    async def _carried_out(self, step_id: int, request: dict[str, Any], script: _Connection) -> dict[str, Any]:
        """Raises RequestRefused, LinkLost, AioRpcError, OSError (the script has gone)."""
        run = rpc.RunOfScript(step_id=step_id, of_job=bool(request.get("of_job")))
        what = request["do"]
        if what in ("keep", "register"):
            return await self._keep(run, request, script)
        if what == "models":
            for model in await self._models(run, str(request.get("name", ""))):
                await script.give({"model": _as_json(model)})
            return {"done": True}
        if what == "open":
            return await self._open(run, str(request["name"]), str(request.get("version") or ""), script)
        if what == "check":
            model = await self._model(run, str(request["name"]), str(request.get("version") or ""))
            await self._refuse_changed(model, await asyncio.to_thread(_place_here, model.path))
            return {"model": _as_json(model)}
        if what == "data":
            data = await self._data(run, str(request["name"]), str(request.get("version") or ""))
            return {"data": _as_json(data)}
        if what == "open_data":
            data = await self._data(run, str(request["name"]), str(request.get("version") or ""))
            return {"data": await self._give_files("data asset", data, script)}
        link = await self._link()
        if what == "datastores":
            async with link.guard():
                asked = rpc.ListDatastoresRequest(run=run)
                places = (await link.agent.ListDatastores(asked, metadata=link.metadata)).places
            return {"places": dict(places)}
        if what == "logged":
            return await self._logged(link, run, bool(request.get("only_tags")), script)
        if what == "names":
            async with link.guard():
                listed = await link.agent.ListRunFiles(rpc.ListRunFilesRequest(run=run), metadata=link.metadata)
            for name in listed.names:
                await script.give({"name": name})
            return {"done": True}
        if what == "read":
            return await self._read(link, run, str(request["name"]), script)
        raise RequestRefused(f"the agent knows no request {what!r}")

    async def _keep(self, run: rpc.RunOfScript, request: dict[str, Any], script: _Connection) -> dict[str, Any]:
        head = rpc.KeepFilesHead(run=run, run_path=str(request.get("run_path", "")))
        if request["do"] == "register":
            head.model.kind = assets.ASSET_KIND_MODEL
            head.model.name = str(request["name"])
            head.model.description = str(request.get("description") or "")
            for key, value in (request.get("tags") or {}).items():
                head.model.tags[str(key)] = str(value)
        link = await self._link()
        async with link.guard():
            # The messages are written from here. Where the master refuses in the middle, gRPC would leave a generator
            # that it has begun: that would wait at the number of a socket which by then is another script's.
            call: Any = cast("Any", link.agent.KeepFiles)(metadata=link.metadata)
            try:
                with suppress(asyncio.InvalidStateError):  # the master has answered already
                    await call.write(rpc.KeepFilesRequest(head=head))
                    while "end" not in (file := await script.receive()):
                        name = str(file["name"])
                        descriptor = script.taken()
                        try:
                            async for chunk in _chunks(descriptor):
                                await call.write(rpc.KeepFilesRequest(name=name, chunk=chunk))
                                name = ""
                        except OSError as error:
                            raise RequestRefused(
                                f"a file that the script hands in cannot be read: {error.strerror}"
                            ) from error
                        finally:
                            os.close(descriptor)
                        await script.send({"kept": file["name"]})
                    await call.done_writing()
                kept = await call
            finally:
                call.cancel()  # where it is over, this does nothing
        return {"model": _as_json(kept.model)} if kept.HasField("model") else {"done": True}

    async def _models(self, run: rpc.RunOfScript, name: str) -> list[assets.Asset]:
        link = await self._link()
        async with link.guard():
            listed = await link.agent.ListModels(rpc.ListModelsRequest(run=run, name=name), metadata=link.metadata)
        return list(listed.models)

    async def _open(self, run: rpc.RunOfScript, name: str, version: str, script: _Connection) -> dict[str, Any]:
        """Gives the script the files of a model, open for reading: it may be where a confined script reads nothing."""
        return {"model": await self._give_files("model", await self._model(run, name, version), script)}

    async def _model(self, run: rpc.RunOfScript, name: str, version: str) -> assets.Asset:
        versions = await self._models(run, name)
        model = next((one for one in versions if version in ("", one.version)), None)
        if model is None:
            raise RequestRefused(f"There is no model {name!r} of version {version}", "FileNotFoundError")
        return model

    async def _refuse_changed(self, model: assets.Asset, place: str) -> None:
        """Raises RequestRefused if a model is not what was registered. `place`: where it is."""
        if why := await asyncio.to_thread(self._changed, place):
            raise RequestRefused(f"The model {model.name}:{model.version} is not what was registered: {why}")

    async def _data(self, run: rpc.RunOfScript, name: str, version: str) -> assets.Asset:
        link = await self._link()
        async with link.guard():
            asked = rpc.FindDataRequest(run=run, name=name, version=version)
            return (await link.agent.FindData(asked, metadata=link.metadata)).data

    async def _give_files(self, what: str, asset: assets.Asset, script: _Connection) -> dict[str, Any]:
        """Gives the script the files of an asset, if it may have them. `what`: the kind of asset, in words."""
        named = f"{asset.name}:{asset.version}"
        # Looked up once: what is checked is what is opened, whatever links are laid meanwhile.
        place = await asyncio.to_thread(_place_here, asset.path)
        # Data that a job has written is an output of it: the master keeps only models for all.
        handed_in = what == "model" and bool(asset.job_id)
        if place and not await asyncio.to_thread(self._may_show, asset.path, place, handed_in=handed_in):
            raise RequestRefused(
                f"The {what} {named} at {asset.path} is not for scripts of this node. Give it to the step as an input, "
                f"azureml:{named}; or whoever runs the agent permits it (--job-paths {asset.path})"
            )
        if not place:
            raise RequestRefused(
                f"The {what} {named} is at {asset.path}, which is not on this node. Give it to the step as an input, "
                f"azureml:{named}, and its path to the script as an argument",
                "FileNotFoundError",
            )
        if what == "model":
            await self._refuse_changed(asset, place)
        try:
            above, last = os.path.split(place)
            with await in_thread(Folder.open, above, drop=Folder.close) as folder:
                if folder.has_file(last):
                    await script.give({"file": last}, folder.read(last))
                else:
                    with folder.folder(last) as below:
                        for file, _ in await in_thread(below.files):
                            await script.give({"file": f"{last}/{file}"}, below.read(file))
        except ConnectionError:
            raise
        except OSError as error:
            raise RequestRefused(f"The {what} {named} cannot be read on this node: {error}") from error
        return _as_json(asset)

    async def _logged(self, link: Link, run: rpc.RunOfScript, only_tags: bool, script: _Connection) -> dict[str, Any]:
        """Writes what was logged for a run into a file that the script has opened."""
        descriptor = script.taken()
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise RequestRefused("the file to write into is no plain file")
            _empty(descriptor)
            request = rpc.ReadLoggedRequest(run=run, only_tags=only_tags)
            async with link.guard():
                async for response in link.agent.ReadLogged(request, metadata=link.metadata):
                    await in_thread(_write_all, descriptor, response.rows)
        except OSError as error:
            raise RequestRefused(f"what the run has logged cannot be written: {error.strerror}") from error
        finally:
            os.close(descriptor)
        return {"done": True}

    async def _read(self, link: Link, run: rpc.RunOfScript, name: str, script: _Connection) -> dict[str, Any]:
        """Writes a file of the run into a file that the script has opened."""
        descriptor = script.taken()
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise RequestRefused("the file to download into is no plain file")
            _empty(descriptor)
            request = rpc.ReadRunFileRequest(run=run, name=name)
            async with link.guard():
                async for response in link.agent.ReadRunFile(request, metadata=link.metadata):
                    await in_thread(_write_all, descriptor, response.chunk)
        except OSError as error:
            raise RequestRefused(f"the file {name!r} cannot be written: {error.strerror}") from error
        finally:
            os.close(descriptor)
        return {"done": True}


class _Connection:
    """A script's end is the other one. Messages are JSON objects; one may bring an open file."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._descriptors: list[int] = []

    def close(self) -> None:
        """Closes it, and what it has brought."""
        if (number := self._socket.fileno()) >= 0:
            # Whoever still waits for it must not be woken, nor end the wait of another one with the same number.
            asyncio.get_running_loop().remove_reader(number)
            asyncio.get_running_loop().remove_writer(number)
        self._socket.close()
        while self._descriptors:
            os.close(self._descriptors.pop())

    def taken(self) -> int:
        """The file that the last message has brought; the caller closes it. Raises RequestRefused."""
        if not self._descriptors:
            raise RequestRefused("the request brings no open file")
        return self._descriptors.pop()

    async def receive(self) -> dict[str, Any]:
        """The next message. Raises ConnectionError at the end, ValueError for what is no message."""
        while self._descriptors:
            os.close(self._descriptors.pop())
        while True:
            try:
                data, brought, _, _ = socket.recv_fds(
                    self._socket, MESSAGE_BYTES_MAX, _FILES_AT_ONCE, socket.MSG_CMSG_CLOEXEC
                )
            except BlockingIOError:
                await self._ready(asyncio.get_running_loop().add_reader, asyncio.get_running_loop().remove_reader)
                continue
            self._descriptors += brought
            if not data:
                raise ConnectionAbortedError("the script has gone")
            message = json.loads(data)
            if not isinstance(message, dict):
                raise ValueError(f"{message!r} is no object")
            return message

    async def send(self, message: dict[str, Any], descriptor: int | None = None) -> None:
        """Sends a message. Raises OSError."""
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
        while True:
            try:
                if descriptor is None:
                    self._socket.send(data)
                else:
                    socket.send_fds(self._socket, [data], [descriptor])
                return
            except BlockingIOError:
                await self._ready(asyncio.get_running_loop().add_writer, asyncio.get_running_loop().remove_writer)

    async def give(self, part: dict[str, Any], descriptor: int | None = None) -> None:
        """Sends a part of the answer, with an open file, which is closed; waits until the script has it. Raises
        OSError.
        """
        try:
            await self.send({"part": part}, descriptor)
        finally:
            if descriptor is not None:
                os.close(descriptor)
        await self.receive()

    async def _ready(self, add: Callable[..., None], remove: Callable[[int], bool]) -> None:
        ready = asyncio.Event()
        number = self._socket.fileno()
        add(number, ready.set)
        try:
            await asyncio.wait_for(ready.wait(), SILENT_S)
        finally:
            if self._socket.fileno() == number:
                remove(number)


async def _chunks(descriptor: int) -> AsyncIterator[bytes]:
    """The bytes of a file, at least one piece. Raises RequestRefused, OSError."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(0, "it is no plain file")
    offset = 0
    while (chunk := await in_thread(os.pread, descriptor, _CHUNK_BYTES, offset)) or not offset:
        yield chunk
        if not chunk:
            return
        offset += len(chunk)


def _place_here(path: str) -> str:
    """Where an asset is on this node; "" if it is not."""
    place = Path(os.path.realpath(path))
    return str(place) if path.startswith("/") and place.exists() else ""


def _empty(descriptor: int) -> None:
    """An earlier try may have written its beginning."""
    os.ftruncate(descriptor, 0)
    os.lseek(descriptor, 0, os.SEEK_SET)


def _write_all(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _as_json(asset: assets.Asset) -> dict[str, Any]:
    return {
        "name": asset.name,
        "version": asset.version,
        "path": asset.path,
        "description": asset.description,
        "tags": dict(asset.tags),
        "created_s": asset.create_time.seconds,
    }
