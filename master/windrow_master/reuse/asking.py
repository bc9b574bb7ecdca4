"""Asks a process for digests, so that the master's own threads are free while many files are read."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from windrow_master.datastores import Datastores
from windrow_master.reuse.digests import NoDigest, Place

LISTINGS = "listings"


class DigestProcess:
    """One process for each question."""

    def __init__(self, folder: Path, datastores: Datastores) -> None:
        """`folder`: where listings are kept; `datastores`: what the addresses in MLTable files mean."""
        self._request: dict[str, Any] = {"listings": str(folder / LISTINGS), "datastores": datastores.places}

    async def digests(self, places: Mapping[str, Place]) -> dict[str, str]:
        """Digests by name. Raises NoDigest for the first place that has none."""
        if not places:
            return {}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                # A module in the folder from which a run was started never shadows one of ours.
                "-P",
                "-m",
                "windrow_master.reuse",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise NoDigest(f"the process that makes digests cannot be started: {error}") from error
        try:
            told, errors = await process.communicate(json.dumps({**self._request, "places": places}).encode())
        finally:
            if process.returncode is None:
                process.kill()
        if process.returncode:
            raise NoDigest(f"the process that makes digests ended: {errors.decode(errors='replace').strip()[-1000:]}")
        answer = json.loads(told)
        if "why" in answer:
            raise NoDigest(f"{answer['name']}: {answer['why']}")
        found: dict[str, str] = answer["digests"]
        return found
