"""Asks `python -m windrow_master.dry_run` (docs/contracts.md, section 5b)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from typing import Any

from windrow.errors import MasterFailed
from windrow.spec import EffectiveJob

DIVIDED_FOR_S = 10.0
"""How long the division of each step is followed. Counts are "at least" after that."""
MINI_BATCHES_MAX = 200_000
DISK_BYTES_MAX = 1 << 30
RECIPES = 3
STORAGE_RETRY_S = "3"
"""A dry run reports a store that does not answer soon; a run waits far longer."""


def ask(
    job: EffectiveJob,
    *,
    state: str | None,
    outputs: str,
    datastores: Mapping[str, str],
    divided: Collection[str],
    since: str = "",
) -> dict[str, Any]:
    """Where a job's data is, and how its inputs are divided.

    `state`: the state folder (absolute, there or not) of a run on this machine; None if the job is for another
    machine's master, whose default place of outputs is `outputs`. `divided`: names of the steps whose inputs are
    divided now. `since`: as of `windrow.spec.earlier_results`, of a run on this machine. Raises MasterFailed.
    """
    question = {
        "document": job.to_json(),
        "state": state,
        "outputs": outputs,
        "datastores": dict(datastores),
        "divided": sorted(divided),
        "since": since,
        "limits": {
            "seconds": DIVIDED_FOR_S,
            "mini_batches": MINI_BATCHES_MAX,
            "disk_bytes": DISK_BYTES_MAX,
            "recipes": RECIPES,
        },
    }
    return _answer(question)


def outputs_written(state: str) -> list[str]:
    """Where the jobs of a state folder, there or not, have written outputs, as far as that can be told. Raises
    MasterFailed.
    """
    return [str(path) for path in _answer({"outputs_of": state})["written"]]


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    # Standard input stays open until the answer: when it ends, the process knows that its caller has gone.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "windrow_master.dry_run"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"WINDROW_STORAGE_RETRY": STORAGE_RETRY_S, **os.environ},
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # its last output says why
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            said = process.stderr.read().decode(errors="replace").strip()
            raise MasterFailed(f"The plan could not be made. Please report this, with the last output: {said[-1500:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()
