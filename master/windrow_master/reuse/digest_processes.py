"""Asks processes for digests, so that the master's own threads stay free while many files are read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windrow_master.datastores import Datastores
from windrow_master.helper_process import command_of
from windrow_master.reuse.digests import NoDigest, Place
from windrow_master.roots import Roots

AT_ONCE = 8
"""At most this many processes: a job may start thousands of steps at a time."""


class DigestProcesses:
    """Asks a process of its own for each question."""

    def __init__(self, folder: Path, datastores: Datastores, roots: Roots | None) -> None:
        """`folder`: of the digest cache; `datastores`: what the addresses in MLTable files mean; `roots`: the folders
        in which everything that is read must be (anywhere if None)."""
        self._request: dict[str, Any] = {
            "cache": str(folder),
            "datastores": datastores.places,
            "roots": None if roots is None else roots.folders,
        }
        self._free = asyncio.Semaphore(AT_ONCE)

    async def digests(self, places: Mapping[str, Place]) -> dict[str, str]:
        """Digests by name. Raises NoDigest for the first place that has none."""
        if not places:
            return {}
        async with self._free:
            answer = await self._ask(json.dumps({**self._request, "places": places}).encode() + b"\n")
        if "why" in answer:
            raise NoDigest(f"{answer['name']}: {answer['why']}")
        found: dict[str, str] = answer["digests"]
        return found

    async def _ask(self, request: bytes) -> dict[str, Any]:
        try:
            process = await asyncio.create_subprocess_exec(
                *command_of("windrow_master.reuse"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                # Signals from a terminal (Ctrl-C) are for the master alone.
                start_new_session=True,
            )
        except OSError as error:
            raise NoDigest(f"the process that makes digests cannot be started: {error}") from error
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        try:
            # Stdin stays open: when it closes, the process knows that the master is gone.
            process.stdin.write(request)
            told, errors = await asyncio.gather(process.stdout.read(), process.stderr.read())
            await process.wait()
        finally:
            process.stdin.close()
            if process.returncode is None:
                process.kill()
                await process.wait()
        try:
            answer: dict[str, Any] = json.loads(told)
        except ValueError as error:
            last_words = errors.decode(errors="replace").strip()[-1000:] or "(none)"
            raise NoDigest(
                f"the process that makes digests ended with {process.returncode}; it wrote last: {last_words}"
            ) from error
        return answer
