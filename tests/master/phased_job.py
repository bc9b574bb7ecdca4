"""A job of a served master whose items wait for their phase, so that a test can do something in the middle of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from served_tls import DEADLINE_S, JOB, SecureMaster, wait_until
from windrow import Client

WINDROW = [sys.executable, "-c", "from windrow.cli import main; main()"]
ITEMS = 20
LEAVES_WITHIN_S = 60.0
EACH = 5
"""Items of a phase."""
FAILS_ONCE = 9
"""The item whose first attempt begins in its phase, and fails in the next one. The last one of its phase: others of it
could be behind it in the queue of its worker.
"""
SCRIPT = """
import os, time

FOLDER = {folder!r}

def run(mini_batch):
    rows = []
    for path in mini_batch:
        number = int(os.path.basename(path)[1:])
        phase = number // {each} + (number == {fails_once})
        while not os.path.exists(os.path.join(FOLDER, "phase-%d" % phase)):
            time.sleep(0.01)
        tried = os.path.join(FOLDER, "tried")
        if number == {fails_once} and not os.path.exists(tried):
            open(tried, "w").close()
            raise ValueError("the first attempt fails")
        rows.append("%d" % number)
    return rows
"""


class PhasedJob:
    """The job, in the datastore of a master that serves, with an agent on this machine."""

    def __init__(self, master: SecureMaster) -> None:
        self._master = master
        self._folder = master.data / "job"
        for name in ("data", "code"):
            (self._folder / name).mkdir(parents=True)
        for number in range(ITEMS):
            (self._folder / "data" / f"f{number:02}").touch()
        script = SCRIPT.format(folder=str(master.data), each=EACH, fails_once=FAILS_ONCE)
        (self._folder / "code" / "entry.py").write_text(script)
        text = JOB.replace('size: "1"\n', 'size: "1"\n    retry_settings: {max_retries: 1, timeout: 3600}\n')
        (self._folder / "job.yml").write_text(text.replace("{type: uri_file}", "{type: uri_file, path: ./out.txt}"))
        self.job_id = ""

    def submit(self, client: Client) -> None:
        self.job_id = client.submit(self._folder / "job.yml").job_id

    def begin(self, phase: int) -> None:
        """Let the items of a phase run."""
        (self._master.data / f"phase-{phase}").touch()

    def wait_for(self, phase: int, client: Client) -> None:
        """Until the items of a phase are done."""
        least = EACH * (phase + 1) - (phase >= FAILS_ONCE // EACH)
        wait_until(lambda: client.get(self.job_id).mini_batches.done >= least, f"phase {phase} is done")

    def rows(self) -> list[int]:
        """The output."""
        return sorted(map(int, (self._folder / "out.txt").read_text().split()))

    def attempts(self) -> list[list[str]]:
        """The lines of the report of all attempts, once it is written."""
        table = "work/sys/job_report/processed_mini-batches.csv"
        path = self._master.state / "jobs" / self.job_id / "logs" / table
        wait_until(path.exists, "the report")
        return [line.split(",") for line in path.read_text().splitlines()[1:]]

    def command(self, *arguments: str) -> str:
        """What a command of the client prints."""
        files = {"WINDROW_CA_FILE": "client/ca.pem", "WINDROW_TOKEN_FILE": "client/client-token"}
        environment = {name: str(self._master.keys / path) for name, path in files.items()}
        return subprocess.run(
            [*WINDROW, *arguments, "--master", f"localhost:{self._master.port}"],
            env={**environment, "PATH": "/usr/bin:/bin", "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        ).stdout


@contextmanager
def agent_of(master: SecureMaster, folder: Path, address: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """An agent with two slots. `address`: the way to the master, if not the direct one."""
    options = (
        *("--ca-file", str(master.keys / "agent" / "ca.pem")),
        *("--join-token-file", str(master.keys / "agent" / "join-token")),
        *("--folder", str(folder), "--node-id", "one", "--slots", "2"),
    )
    with (folder.parent / "agent.stderr").open("wb") as log:
        command = [*WINDROW, "agent", "--master", address or f"localhost:{master.port}", *options]
        agent = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield agent
    finally:
        agent.terminate()
        try:
            agent.wait(LEAVES_WITHIN_S)
        except subprocess.TimeoutExpired:
            # The test has failed, and items wait for their phase.
            agent.kill()
            agent.wait(DEADLINE_S)
