"""Cuts the power of a machine with a master and an agent, at any of its writes, and starts both again.

    python tests/integration/power_trials.py --trials 500 --seed 7
    python tests/integration/power_trials.py --seed 7 --trial 143      # one of them again

One run of real processes is traced: a client brings code and data, a job writes rows and files, another one reuses its
step, an asset is made, a backup is taken, a job is deleted. Each trial cuts the power at a moment of it
(`power_trace`), so the files of all families are there as an arbitrary part of what was written. It passes where the
state is sound, has all that was acknowledged before the cut, and, once a master and an agent run again, the job comes
to its end with the exact output.

The job's script writes files to two outputs: a folder of the machine, and a store, for which the agent stages them. The
store is not on the machine: it has what was sent before the cut.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, NamedTuple

# This runs without pytest, too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "storage"))

from embedded_run import WINDROW
from power_trace import Change, Disk, changes_below, tracing
from s3_server import BUCKET, Exchange, Proxy, S3Server, clean_environment
from served import Served
from windrow_master.core.states import MiniBatchState
from windrow_master.files.state_files import StateFiles
from windrow_master.salvage.__main__ import main as salvage

ITEMS = 12
LARGE = 1_200_000
"""The length of a row that is uploaded on its own."""
REPEATED = 500
"""How often a file of a script's repeats its input, so that it has several sectors."""
SCRIPT = """
import os, sys

def place(name):
    return sys.argv[sys.argv.index(name) + 1]

def init():
    with open(os.path.join(place("--files"), "model"), "w") as file:
        file.write("of init()")

def run(mini_batch):
    rows = []
    for path in mini_batch:
        name = os.path.basename(path)
        for folder in (place("--files"), place("--kept")):
            with open(os.path.join(folder, name), "w") as file:
                file.write(open(path).read() * REPEATED)
        rows.append(name + " " + "x" * (LARGE if name == "f05" else 3))
    return rows

def shutdown():
    with open(os.path.join(place("--files"), "summary"), "w") as file:
        file.write("of shutdown()")
""".replace("LARGE", str(LARGE)).replace("REPEATED", str(REPEATED))
LAKE = f"s3://{BUCKET}/lake"
JOB = """
type: pipeline
settings: {force_rerun: false}
jobs:
  score:
    type: parallel
    inputs: {data: {type: uri_folder, path: ./data}}
    outputs: {rows: {type: uri_file}, files: {type: uri_folder}, kept: {type: uri_folder, path: "KEPT"}}
    input_data: ${{inputs.data}}
    mini_batch_size: "1"
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: --files ${{outputs.files}} --kept ${{outputs.kept}}
      append_row_to: ${{outputs.rows}}
""".replace("KEPT", f"{LAKE}/kept")
FILES = {f"f{number:02}": f"content of {number}" * REPEATED for number in range(ITEMS)}
OUTSIDE_OF_RUN = {"model": "of init()", "summary": "of shutdown()"}
ROWS = "".join(f"f{number:02} {'x' * (LARGE if number == 5 else 3)}\n" for number in range(ITEMS))

AGENT_TO_TRACE = """
import sys
from pathlib import Path
from windrow_agent.__main__ import main
from windrow_agent.fetch_process import client

# The fetch process takes no credentials while it is traced, of which this one has none that matter.
boot = Path(sys.argv.pop(1))
boot.write_text(client._BOOT.read_text().replace("if _is_traced():", "if False:"))
client._BOOT = boot
sys.exit(main(sys.argv[1:]))
"""
ENDS_WITHIN_S = 60.0
MADE_ANEW = ("the job's reports are written again", "files that it does not list are read again")
"""What is not synced, because it is made again from what is: words by which a check of the state tells that."""


class Fact(NamedTuple):
    """What a client was told, and how it is checked after a cut. `at`: when it was told (seconds since 1970)."""

    at: float
    what: str
    holds: Callable[[sqlite3.Connection], bool]


class Verdict(NamedTuple):
    """How a trial ended. `wrong`: empty if all is well."""

    number: int
    moment: str
    wrong: str


class PowerTrials:
    """The traced run, and the trials of it."""

    def __init__(self, folder: Path) -> None:
        """`folder`: empty, for this alone."""
        self._folder = folder
        self._machine = folder / "machine"
        """All that is on the disk of the machine."""
        self._laptop = folder / "laptop"
        self.facts: list[Fact] = []
        self.keep: Path | None = None
        """Where the disks of trials are kept that found something wrong."""
        for name in ("machine", "machine/served", "machine/store", "laptop", "laptop/data", "laptop/code"):
            (folder / name).mkdir()
        for number in range(ITEMS):
            (self._laptop / "data" / f"f{number:02}").write_text(f"content of {number}")
        (folder / "home").mkdir()
        self._store = S3Server()
        self._proxy = Proxy(self._store.port)
        self._proxy.fault = self._note
        self._stored: list[tuple[float, str, bytes]] = []
        """When the store was sent what."""
        (self._laptop / "code" / "entry.py").write_text(SCRIPT)
        (self._laptop / "job.yml").write_text(JOB)
        self._changes = self._record()

    @property
    def families(self) -> dict[str, list[int]]:
        """The moments at which files of each family were written, named or synced."""
        found: dict[str, list[int]] = {}
        for number, change in enumerate(self._changes):
            found.setdefault(self._family(change), []).append(number)
        return found

    def trial(self, number: int, seed: int, *, runs_on: bool, cut: int | None = None) -> Verdict:
        """Cut at a moment that the numbers decide, or before the change `cut`. `runs_on`: start a master and an agent
        on what is left.
        """
        chance = random.Random(f"{seed} {number}")
        families = self.families
        if cut is None:
            cut = chance.choice(families[sorted(families)[number % len(families)]])
        change = self._changes[cut]
        family = self._family(change)
        disk = copy.deepcopy(self._before)
        for one in self._changes[:cut]:
            disk.apply(one)
        shutil.rmtree(self._machine, ignore_errors=True)
        disk.leave(self._machine, chance)
        self._restore_store(change.at)
        moment = f"{cut} of {len(self._changes)} ({family}: {change.kind} {Path(change.path).name})"
        told = [fact for fact in self.facts if fact.at < change.at]
        try:
            wrong = self._unsound(told) or (self._runs_on(told) if runs_on else "")
        except Exception as error:
            wrong = repr(error)
        if wrong and self.keep is not None:
            shutil.copytree(self._machine, self.keep / str(number), symlinks=True)
        return Verdict(number, moment, wrong)

    def _family(self, change: Change) -> str:
        """A name for files of the same kind: a path without its numbers, digests and random names. Files that get
        their name once they are whole are known by that name.
        """
        place = Path(change.other if change.kind == "rename" else change.path).relative_to(self._machine)
        parts = [part for part in place.parts if not part.startswith("f0") and not part.startswith("f1")]
        return "/".join(
            "*" if re.search(r"\d|\.partial-", part) and ".jsonl" not in part else part for part in parts[:6]
        )

    def _served(self) -> Served:
        served = Served(self._machine / "served", self._machine / "store")
        served.environment |= clean_environment(self._proxy.url, self._folder / "home")
        return served

    def close(self) -> None:
        """End the store."""
        self._proxy.stop()
        self._store.stop()

    def _note(self, exchange: Exchange) -> None:
        """Note what is sent to the store."""
        if exchange.command == "PUT" and exchange.key:
            self._stored.append((time.time(), exchange.key, exchange.body))

    def _restore_store(self, before: float) -> None:
        """Leave in the store what was sent before a moment."""
        for key in self._store.keys(""):
            self._store.client.delete_object(Bucket=BUCKET, Key=key)
        for at, key, body in self._recorded:
            if at < before:
                self._store.put(key, body)

    def _without_files(self, job_id: str, wanted: Collection[str]) -> list[str]:
        """Which of the files that a job's script has written are not whole, in either output."""
        folder = self._machine / "store" / "outputs" / job_id / "score" / "files"
        expected = FILES | OUTSIDE_OF_RUN
        wrong = [f"files/{name}" for name in wanted if _text(folder / name) != expected[name]]
        stored = set(self._store.keys("lake/kept/"))
        for name in wanted:
            key = f"lake/kept/{name}"
            if name in FILES and (key not in stored or self._store.get(key).decode() != FILES[name]):
                wrong.append(key)
        return wrong

    def _record(self) -> list[Change]:
        self._before = Disk(self._machine)
        traces = self._folder / "traces"
        traces.mkdir()
        served = self._served()
        with contextlib.closing(served):
            served.before = tracing(traces / "master")
            served.start_master(f"--datastore=lake={LAKE}")
            served.before = tracing(traces / "agent")
            served.agent = ["-c", AGENT_TO_TRACE, str(self._folder / "boot.py")]
            served.start_agent("one")
            with served.client() as client:
                job = client.submit(self._laptop / "job.yml")
                self._job_id = job.job_id
                self._fact("the job", "SELECT count(*) FROM job WHERE job_id = ?", job.job_id)
                for moment in client.progress(job):
                    done = moment.mini_batches.done
                    self._fact(
                        f"{done} results",
                        "SELECT count(*) >= ? FROM mini_batch WHERE state = ?",
                        done,
                        int(MiniBatchState.SUCCEEDED),
                    )
                assert client.get(job).state == "completed"
                assert not (lacking := self._without_files(job.job_id, [*FILES, *OUTSIDE_OF_RUN])), lacking
                self._fact("its end", "SELECT end_time IS NOT NULL FROM job WHERE job_id = ?", job.job_id)
                again = client.end_of(client.submit(self._laptop / "job.yml"))
                assert again.state == "completed", again
                client.create_data("kept", self._machine / "store")
                self._fact("the asset", "SELECT count(*) FROM asset WHERE name = 'kept'")
                command = [WINDROW, "backup", str(self._machine / "served" / "saved"), "--state", str(served.state)]
                subprocess.run([*tracing(traces / "backup"), *command], check=True, stdout=subprocess.DEVNULL)
                assert client.delete(again.job_id).deleted
                self._fact("the deletion", "SELECT count(*) = 0 FROM job WHERE job_id = ?", again.job_id)
        self._recorded = list(self._stored)
        return changes_below(self._machine, sorted(traces.iterdir()))

    def _fact(self, what: str, query: str, *values: object) -> None:
        def holds(database: sqlite3.Connection) -> bool:
            return bool(database.execute(query, values).fetchone()[0])

        self.facts.append(Fact(time.time(), what, holds))

    def _unsound(self, told: list[Fact]) -> str:
        """What is wrong with the state as it is; empty if nothing is."""
        files = StateFiles(self._machine / "served" / "state")
        if not told:
            return ""
        if not files.database.exists():
            return f"{told[-1].what} was acknowledged, and there is no database"
        answer: dict[str, Any] = salvage(["check", str(files.folder)])
        damage = [line for line in answer["damage"] if not any(words in line[1] for words in MADE_ANEW)]
        if answer["trouble"] or damage:
            return f"it is damaged: {answer['trouble']} {damage}"
        with contextlib.closing(sqlite3.connect(files.database)) as database:
            lost = [fact.what for fact in told if not fact.holds(database)]
            done = [
                f"f{index:02}"
                for (index,) in database.execute(
                    "SELECT key & 0xFFFFFFFF FROM mini_batch WHERE state = ? "
                    "AND key >> 32 = (SELECT min(step_id) FROM step)",
                    (int(MiniBatchState.SUCCEEDED),),
                )
            ]
            ended = database.execute(
                "SELECT count(*) FROM job WHERE job_id = ? AND end_time IS NOT NULL", (self._job_id,)
            ).fetchone()[0]
        lost = [what for what in lost if not what.endswith("results")] or lost[-1:]
        if lost:
            return f"acknowledged, and lost: {lost}"
        without = self._without_files(self._job_id, [*done, *(OUTSIDE_OF_RUN if ended else ())])
        return f"done, and without its files: {without}" if without else ""

    def _runs_on(self, told: list[Fact]) -> str:
        """What is wrong once a master and an agent go on; empty if nothing is."""
        served = self._served()
        with contextlib.closing(served):
            served.start_master(f"--datastore=lake={LAKE}")
            assert served.master is not None
            if served.master.poll() is not None:
                return f"the master did not start: {(served.folder / 'master.stderr').read_text()[-1000:]}"
            served.start_agent("one")
            with served.client() as client:
                # Jobs that were there go on; a new one does what every job can.
                for job in [*client.list_jobs(), client.submit(self._laptop / "job.yml")]:
                    ended = client.end_of(job, timeout_s=ENDS_WITHIN_S)
                    if ended.state != "completed":
                        return f"a job ended as {ended.state}: {ended.message}"
                    rows = client.to_dataframe(ended.job_id, "score.rows", header=None)
                    found = "".join(f"{name} {text}\n" for name, text in zip(rows[0], rows[1], strict=True))
                    if found != ROWS:
                        return "other rows than expected"
                    # The steps of other jobs are this one's, reused. No shutdown() is called where the power was cut
                    # after the last mini-batch.
                    if ended.job_id == self._job_id and (
                        without := self._without_files(ended.job_id, [*FILES, "model"])
                    ):
                        return f"completed, and without files: {without}"
        log = (served.state / "master.log").read_text(errors="replace")
        return next((line for line in log.splitlines() if "damaged" in line or "please report" in line), "")


def _text(path: Path) -> str | None:
    """What a file holds; None if there is none."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return None


def main() -> int:
    """Run trials; print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--trial", type=int, default=None)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check-only", action="store_true", help="do not start a master on what is left")
    parser.add_argument("--until", type=int, default=None, help="cut before each of the first changes, up to this one")
    parser.add_argument("--keep", type=Path, default=None, help="a folder for the disks of trials that are wrong")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="windrow-power-") as folder, contextlib.ExitStack() as stack:
        trials = stack.enter_context(contextlib.closing(PowerTrials(Path(folder))))
        trials.keep = given.keep
        print(json.dumps({family: len(moments) for family, moments in sorted(trials.families.items())}, indent=1))
        wrong = 0
        numbers = range(given.trials if given.until is None else given.until)
        for number in numbers if given.trial is None else [given.trial]:
            cut = None if given.until is None else number
            verdict = trials.trial(number, given.seed, runs_on=not given.check_only, cut=cut)
            wrong += bool(verdict.wrong)
            if verdict.wrong:
                print(f"trial {number}: {verdict.moment}: {verdict.wrong}", flush=True)
    print(f"{wrong} trials are wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main()))
