"""A state that is brought back from a backup, while agents live on that know what it has lost."""

from __future__ import annotations

import shutil
import signal

import pytest
from embedded_run import wait_until
from fleet_commands import Fleet


class Backup:
    """A copy of a master's state folder."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.state = fleet.state
        self._copy = fleet.folder / "backup"

    def make(self, *, live: bool = False) -> None:
        """As docs/how-to/back-up-and-restore.md: with the master stopped. `live`: a snapshot of one that goes on."""
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


@pytest.mark.parametrize("live", [False, True], ids=["backup", "snapshot"])
def test_nothing_of_a_lost_future_is_taken_for_a_job_that_has_its_number(fleet: Fleet, live: bool) -> None:
    """The restored master gives the lost job's step id to the next job. Neither leases and results that the agent
    holds of the lost one, nor its code, which the agent has under that id, may go into the new one's output. After a
    snapshot of a master that went on, those leases have a prefix that the restored state knows."""
    gate = fleet.folder / "gate"
    fleet.start_agent("one")
    backup = Backup(fleet)
    backup.make(live=live)
    fleet.create("lost", "--set", f"jobs.score.environment_variables.GATE={gate}")
    wait_until(lambda: fleet.node("one")["leases"] >= 2, "the agent holds leases of the lost future")
    (fleet.folder / "code" / "entry.py").write_text(
        "import os\ndef run(mini_batch):\n    return ['new ' + os.path.basename(path) for path in mini_batch]\n"
    )
    expected = "".join(f"new {path.name}\n" for path in sorted((fleet.folder / "data").iterdir()))
    fleet.processes["one"].send_signal(signal.SIGSTOP)  # it goes on when the new job is there
    backup.restore()
    fleet.create("new")
    gate.touch()
    fleet.processes["one"].send_signal(signal.SIGCONT)
    followed = fleet.run("job", "stream", "new")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert fleet.output.read_text() == expected
    assert "does not have this step" in (fleet.folder / "folder-one" / "agent.log").read_text()


GATED = (
    "import os, time\n"
    "def run(mini_batch):\n"
    "    while not os.path.exists(os.environ['GATE']):\n"
    "        time.sleep(0.01)\n"
    "    (path,) = mini_batch\n"
    "    assert not path.endswith('7'), 'a bad one'\n"
)
SCRIPTS = {
    "text": GATED + "    return [os.path.basename(path)]\n",
    "parquet": GATED + "    import pandas\n    return pandas.DataFrame({'name': [os.path.basename(path)]})\n",
}


def end_after_the_backup(fleet: Fleet, form: str = "text") -> Backup:
    """A job that is unfinished in the backup, and done before that is brought back."""
    (fleet.folder / "code" / "entry.py").write_text(SCRIPTS[form])
    if form == "parquet":
        fleet.output = fleet.folder / "out.parquet"
        job = (fleet.folder / "job.yml").read_text().replace("out.txt", "out.parquet")
        arguments = "entry_script: entry.py\n      program_arguments: --append_row_format parquet"
        (fleet.folder / "job.yml").write_text(job.replace("entry_script: entry.py", arguments))
    fleet.start_agent("one")
    fleet.create("nightly", "--set", f"jobs.score.environment_variables.GATE={fleet.folder / 'gate'}")
    wait_until(lambda: fleet.node("one")["leases"] >= 2, "the job runs")
    backup = Backup(fleet)
    backup.make()
    (fleet.folder / "gate").touch()
    followed = fleet.run("job", "stream", "nightly", "--tolerate")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    return backup


@pytest.mark.parametrize("form", ["text", "parquet"])
def test_a_job_that_had_ended_after_the_backup_ends_again_over_its_own_output(fleet: Fleet, form: str) -> None:
    backup = end_after_the_backup(fleet, form)
    written, stamp = fleet.output.read_bytes(), fleet.output.stat().st_mtime_ns
    failed = (fleet.folder / "failed_items.csv").read_text()
    assert written and failed
    backup.restore()
    followed = fleet.run("job", "stream", "nightly", "--tolerate")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert (fleet.output.read_bytes(), fleet.output.stat().st_mtime_ns) == (written, stamp)
    assert (fleet.folder / "failed_items.csv").read_text() == failed
    message = fleet.job("nightly")["steps"][0]["message"]
    assert "does not touch it" not in message and "failed_items.csv" in message


@pytest.mark.parametrize("how", ["longer", "as long"])
def test_an_output_that_was_changed_after_the_backup_is_left_alone_and_the_way_on_is_told(
    fleet: Fleet, how: str
) -> None:
    backup = end_after_the_backup(fleet)
    written = fleet.output.read_bytes()
    changed = written + b"a line of somebody's own\n" if how == "longer" else b"g" + written[1:]
    fleet.output.write_bytes(changed)
    backup.restore()
    followed = fleet.run("job", "stream", "nightly", "--tolerate")
    told = followed.stdout + followed.stderr
    assert followed.returncode == 1, told
    assert "is not what this job writes" in told and "windrow job retry nightly" in told, told
    assert fleet.output.read_bytes() == changed
    fleet.output.rename(fleet.folder / "mine.txt")
    done = fleet.job("nightly")["steps"][0]["mini_batches"]
    assert fleet.run("job", "retry", "nightly").returncode == 0
    followed = fleet.run("job", "stream", "nightly", "--tolerate")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert fleet.output.read_bytes() == written
    assert fleet.job("nightly")["steps"][0]["mini_batches"]["succeeded"] == done["succeeded"]
