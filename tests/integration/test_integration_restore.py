"""A state that is brought back from a backup, while agents live on that know what it has lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from embedded_run import wait_until
from fleet_commands import Fleet


class Backup:
    """A copy of a master's state folder."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.state = fleet.folder / "master-state"
        self._copy = fleet.folder / "backup"

    def make(self, *, live: bool = False) -> None:
        """As docs/deploy.md has it: the master is stopped meanwhile. `live`: a snapshot of one that goes on."""
        if not live:
            self._end_master()
        shutil.copytree(self.state, self._copy)
        if not live:
            self._fleet.start_master()

    def restore(self) -> None:
        """The master ends, and another one starts over the copy."""
        self._end_master()
        shutil.rmtree(self.state)
        shutil.copytree(self._copy, self.state)
        self._fleet.start_master()

    def _end_master(self) -> None:
        master = self._fleet.processes["master"]
        master.terminate()
        master.wait(60)


def held_by(fleet: Fleet, gate: Path) -> None:
    """The lost future: a job whose mini-batches are with an agent, which lives on."""
    fleet.create("lost", "--set", f"jobs.score.environment_variables.GATE={gate}")
    wait_until(lambda: fleet.node("one")["leases"] >= 2, "leases")


def other_script(fleet: Fleet) -> str:
    """Another job of the same shape; returns what its output is to be."""
    (fleet.folder / "code" / "entry.py").write_text(
        "import os\ndef run(mini_batch):\n    return ['new ' + os.path.basename(path) for path in mini_batch]\n"
    )
    return "".join(f"new {path.name}\n" for path in sorted((fleet.folder / "data").iterdir()))


def test_nothing_of_a_lost_future_is_taken_for_a_job_that_has_its_number(fleet: Fleet) -> None:
    """The restored master gives the lost job's step id to the next job. Neither leases and results that the agent
    holds of the lost one, nor its code, which the agent has under that id, may go into the new one's output."""
    gate = fleet.folder / "gate"
    fleet.start_agent("one")
    backup = Backup(fleet)
    backup.make()
    held_by(fleet, gate)
    expected = other_script(fleet)
    fleet.processes["one"].send_signal(19)  # SIGSTOP: it comes back when the new job is there
    backup.restore()
    fleet.create("new")
    gate.touch()
    fleet.processes["one"].send_signal(18)
    followed = fleet.run("job", "stream", "new")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert fleet.output.read_text() == expected
    assert "does not have this step" in (fleet.folder / "folder-one" / "agent.log").read_text()


def test_the_same_after_a_snapshot_of_a_master_that_went_on(fleet: Fleet) -> None:
    """Leases of the lost future then have a prefix that the restored state knows."""
    gate = fleet.folder / "gate"
    fleet.start_agent("one")
    backup = Backup(fleet)
    backup.make(live=True)
    held_by(fleet, gate)
    expected = other_script(fleet)
    fleet.processes["one"].send_signal(19)
    backup.restore()
    fleet.create("new")
    gate.touch()
    fleet.processes["one"].send_signal(18)
    followed = fleet.run("job", "stream", "new")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert fleet.output.read_text() == expected


FAILING = "import os\ndef run(mini_batch):\n    (path,) = mini_batch\n    assert not path.endswith('7'), 'a bad one'\n"
RETURNING = {
    "text": FAILING + "    return [os.path.basename(path)]\n",
    "parquet": FAILING + "    import pandas\n    return pandas.DataFrame({'name': [os.path.basename(path)]})\n",
}


def end_after_the_backup(fleet: Fleet, form: str = "text") -> tuple[bytes, int]:
    """A job that is unfinished in the backup, and done before that is brought back; returns what it wrote."""
    gated = "while not os.path.exists(os.environ['GATE']):\n        time.sleep(0.01)\n    (path,) = mini_batch\n"
    script = RETURNING[form].replace("(path,) = mini_batch\n", gated).replace("import os\n", "import os, time\n")
    (fleet.folder / "code" / "entry.py").write_text(script)
    if form == "parquet":
        fleet.output = fleet.folder / "out.parquet"
        job = (fleet.folder / "job.yml").read_text().replace("out.txt", "out.parquet")
        arguments = "entry_script: entry.py\n      program_arguments: --append_row_format parquet"
        (fleet.folder / "job.yml").write_text(job.replace("entry_script: entry.py", arguments))
    fleet.start_agent("one")
    fleet.create("nightly", "--set", f"jobs.score.environment_variables.GATE={fleet.folder / 'gate'}")
    wait_until(lambda: fleet.node("one")["leases"] >= 2, "leases")
    backup = Backup(fleet)
    backup.make()
    (fleet.folder / "gate").touch()
    followed = fleet.run("job", "stream", "nightly")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    written = fleet.output.read_bytes()
    assert written
    backup.restore()
    return written, fleet.output.stat().st_mtime_ns


@pytest.mark.parametrize("form", ["text", "parquet"])
def test_a_job_that_had_ended_after_the_backup_ends_again_over_its_own_output(fleet: Fleet, form: str) -> None:
    written, stamp = end_after_the_backup(fleet, form)
    failed = (fleet.folder / "failed_items.csv").read_text()
    followed = fleet.run("job", "stream", "nightly")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert (fleet.output.read_bytes(), fleet.output.stat().st_mtime_ns) == (written, stamp)
    assert (fleet.folder / "failed_items.csv").read_text() == failed
    message = fleet.job("nightly")["steps"][0]["message"]
    assert "left alone" not in message and "failed_items.csv" in message


def test_an_output_that_was_changed_after_the_backup_is_left_alone_and_the_way_on_is_told(fleet: Fleet) -> None:
    written, _ = end_after_the_backup(fleet)
    fleet.output.write_bytes(written + b"a line of somebody's own\n")
    followed = fleet.run("job", "stream", "nightly")
    told = followed.stdout + followed.stderr
    assert followed.returncode == 1, told
    assert "is not what this job writes" in told and "windrow job retry nightly" in told, told
    assert fleet.output.read_bytes() == written + b"a line of somebody's own\n"
    fleet.output.rename(fleet.folder / "mine.txt")
    done = fleet.job("nightly")["steps"][0]["mini_batches"]
    assert fleet.run("job", "retry", "nightly").returncode == 0
    followed = fleet.run("job", "stream", "nightly")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert fleet.output.read_bytes() == written
    assert fleet.job("nightly")["steps"][0]["mini_batches"]["succeeded"] == done["succeeded"]
