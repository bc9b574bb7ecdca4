"""Damages the state of interrupted runs at random, and lets them go on.

    python tests/damage/damage_trials.py --trials 2000 --seed 7 --processes 2
    python tests/damage/damage_trials.py --trials 50 --kinds csv,keys --only 'windrow.db*'
    python tests/damage/damage_trials.py --seed 7 --trial 143      # one of them again

Each trial takes the state of a run that was killed in the middle, flips bits of a file of it, cuts, overwrites or
deletes it, or adds to it (while no process is at work, or in the middle of the run), and goes on with the run. It
passes where the run makes, byte for byte, the output of an undisturbed one, or says that something is wrong and ends
with another exit code than 0. It fails with any other output, a traceback, words for the developers ("please report
this"), no words at all, processes that stay, or no end.
"""

from __future__ import annotations

import argparse
import fnmatch
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from damage_jobs import KINDS, OPTIONS, DamageJob, wait_until
from file_damage import harm

RUN_S = 60.0
SAFE = {
    "lock": "its bytes are for people; what counts is the lock that the kernel keeps",
    "reserve": "its content means nothing; each start makes it anew",
    "outputs/*": "what a script has written for a later step is data, as any input is: a change of it is not Windrow's",
}
"""Patterns of the files that no trial damages, and why."""


class Trial(NamedTuple):
    """What one did, and how it ended."""

    number: int
    kind: str
    way: str
    file: str
    running: bool
    verdict: str
    """"equal", "told", or what is wrong."""
    words: str

    @property
    def passed(self) -> bool:
        return self.verdict in ("equal", "told")

    def __str__(self) -> str:
        when = "running" if self.running else "stopped"
        return f"trial {self.number}: {self.kind}, {when}, {self.way} in {self.file}: {self.verdict}"


def one_trial(job: DamageJob, number: int, seed: int, expected: bytes, only: str, *, running: bool | None) -> Trial:
    """Carry one out."""
    chance = random.Random(f"{seed} {number}")
    in_the_run = chance.random() < 0.1 if running is None else running
    job.restore(checkpointed=chance.random() < 0.5)
    if in_the_run:
        job.gate.touch()
        job.start(*OPTIONS, *job.run_options)
        # Until the run has begun, or has taken up what it was at.
        deadline = time.monotonic() + 10
        while not job.pids("worker") and time.monotonic() < deadline and job.process and job.process.poll() is None:
            time.sleep(0.01)
    files = [
        path
        for path in job.files()
        if not any(fnmatch.fnmatch(str(path.relative_to(job.state)), pattern) for pattern in SAFE)
        and fnmatch.fnmatch(str(path.relative_to(job.state)), only)
    ]
    # Names first: else a folder with hundreds of like files would take all trials.
    name = chance.choice(sorted({path.name for path in files}))
    path = chance.choice([path for path in files if path.name == name])
    try:
        done = harm(path, chance)
    except FileNotFoundError:
        done = "gone by itself"
    if in_the_run:
        job.gate.unlink()
    else:
        job.start(*OPTIONS, *job.run_options)
    verdict, words = judged(job, expected)
    return Trial(number, job.name, done, str(path.relative_to(job.state)), in_the_run, verdict, words)


def judged(job: DamageJob, expected: bytes) -> tuple[str, str]:
    """How a run ends: the verdict, and what it said."""
    assert job.process is not None
    try:
        text, _ = job.process.communicate(timeout=RUN_S)
        code = job.process.returncode
    except subprocess.TimeoutExpired:
        for role in ("master", "agent", "cli"):
            if job.pids(role):
                job.kill(role)
        job.process.kill()
        text, _ = job.process.communicate()
        return "HANGS", text
    try:
        wait_until(lambda: not job.strays(), "no process is left", 30)
    except AssertionError:
        return "LEAVES PROCESSES", text
    output = job.output.read_bytes() if job.output.exists() else None
    if code == 0 and output is not None and job.is_told(output, expected, text):
        return ("equal" if output == expected else "told"), text
    if output not in (None, job.before(), expected):
        return f"ANOTHER OUTPUT (exit code {code})", text
    if "Traceback" in text or "please report" in text.lower():
        return "A TRACEBACK", text
    if code == 0:
        return ("equal" if output == expected else "NO OUTPUT, exit code 0"), text
    return ("told" if len(text.strip()) > 20 else "NO WORDS"), text


def trials(
    folder: Path,
    kinds: Sequence[str],
    numbers: Sequence[int],
    seed: int,
    only: str = "*",
    *,
    running: bool | None = None,
) -> Iterator[Trial]:
    """Carry out trials in a folder. The kind goes by the number of the trial."""
    built: dict[str, tuple[DamageJob, bytes]] = {}
    for number in numbers:
        kind = kinds[number % len(kinds)]
        if kind not in built:
            job = KINDS[kind](folder / kind)
            built[kind] = (job, job.build())
        job, expected = built[kind]
        yield one_trial(job, number, seed, expected, only, running=running)


def _some(given: tuple[str, list[str], list[int], int, str, bool | None]) -> list[Trial]:
    folder, kinds, numbers, seed, only, running = given
    Path(folder).mkdir(parents=True, exist_ok=True)
    found = []
    for trial in trials(Path(folder), kinds, numbers, seed, only, running=running):
        found.append(trial)
        if not trial.passed:
            print(f"{trial}\n{trial.words}", flush=True)
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--trial", type=int, help="only this one")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which jobs, with commas between")
    parser.add_argument("--only", default="*", help="pattern of the paths of files, below the state folder")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--running", action=argparse.BooleanOptionalAction, help="always, or never, in a run")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    numbers = list(range(given.trials)) if given.trial is None else [given.trial]
    kinds = given.kinds.split(",")
    folder = Path(tempfile.mkdtemp(prefix="windrow-damage-"))
    processes = min(given.processes, len(numbers))
    # By kind to one process each, as far as that goes: each makes the state of its kinds once.
    shares = [[number for number in numbers if number % len(kinds) % processes == at] for at in range(processes)]
    work = [
        (str(folder / f"{at}"), kinds, share, given.seed, given.only, given.running)
        for at, share in enumerate(shares)
        if share
    ]
    try:
        with multiprocessing.Pool(len(work)) as pool:
            found = [trial for part in pool.imap_unordered(_some, work) for trial in part]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    verdicts = Counter(trial.verdict for trial in found)
    print(f"{len(found)} trials, seed {given.seed}: " + ", ".join(f"{n} {name}" for name, n in verdicts.most_common()))
    by_file = Counter((trial.file.rpartition("/")[2], trial.verdict) for trial in found)
    for (name, verdict), count in sorted(by_file.items()):
        print(f"  {name}: {count} {verdict}")
    for trial in found:
        if trial.verdict == "told" and given.trial is not None:
            print(trial.words)
    return int(any(not trial.passed for trial in found))


if __name__ == "__main__":
    sys.exit(main())
