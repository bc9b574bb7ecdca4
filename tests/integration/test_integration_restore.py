"""A state that is brought back from a backup, while agents live on that know what it has lost."""

from __future__ import annotations

import shutil
import signal

import pytest
from cluster_commands import ServedCluster
from embedded_run import wait_until


class Backup:
    """A copy of a master's state folder."""

    def __init__(self, cluster: ServedCluster) -> None:
        self._cluster = cluster
        self.state = cluster.state
        self._copy = cluster.folder / "backup"

    def make(self, *, live: bool = False) -> None:
        """As docs/how-to/back-up-and-restore.md: with the master stopped. `live`: a snapshot of one that goes on."""
        if not live:
            self._end_master()
        shutil.copytree(self.state, self._copy)
        if not live:
            self._cluster.start_master()

    def restore(self) -> None:
        """The master ends, and another one starts over the copy."""
        self._end_master()
        shutil.rmtree(self.state)
        shutil.copytree(self._copy, self.state)
        self._cluster.start_master()

    def _end_master(self) -> None:
        master = self._cluster.processes["master"]
        master.terminate()
        master.wait(60)


@pytest.mark.parametrize("live", [False, True], ids=["backup", "snapshot"])
def test_nothing_of_a_lost_future_is_taken_for_a_job_that_has_its_number(cluster: ServedCluster, live: bool) -> None:
    """The restored master gives the lost job's step id to the next job. Neither leases and results that the agent
    holds of the lost one, nor its code, which the agent has under that id, may go into the new one's output. After a
    snapshot of a master that went on, those leases have a prefix that the restored state knows."""
    gate = cluster.folder / "gate"
    cluster.start_agent("one")
    backup = Backup(cluster)
    backup.make(live=live)
    cluster.create("lost", "--set", f"jobs.score.environment_variables.GATE={gate}")
    wait_until(lambda: cluster.node("one")["leases"] >= 2, "the agent holds leases of the lost future")
    (cluster.folder / "code" / "entry.py").write_text(
        "import os\ndef run(mini_batch):\n    return ['new ' + os.path.basename(path) for path in mini_batch]\n"
    )
    expected = "".join(f"new {path.name}\n" for path in sorted((cluster.folder / "data").iterdir()))
    cluster.processes["one"].send_signal(signal.SIGSTOP)  # it goes on when the new job is there
    backup.restore()
    cluster.create("new")
    gate.touch()
    cluster.processes["one"].send_signal(signal.SIGCONT)
    followed = cluster.run("job", "stream", "new")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert cluster.output.read_text() == expected
    assert "does not have this step" in (cluster.folder / "folder-one" / "agent.log").read_text()


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


def end_after_the_backup(cluster: ServedCluster, form: str = "text") -> Backup:
    """A job that is unfinished in the backup, and done before that is brought back."""
    (cluster.folder / "code" / "entry.py").write_text(SCRIPTS[form])
    if form == "parquet":
        cluster.output = cluster.folder / "out.parquet"
        job = (cluster.folder / "job.yml").read_text().replace("out.txt", "out.parquet")
        arguments = "entry_script: entry.py\n      program_arguments: --append_row_format parquet"
        (cluster.folder / "job.yml").write_text(job.replace("entry_script: entry.py", arguments))
    cluster.start_agent("one")
    cluster.create("nightly", "--set", f"jobs.score.environment_variables.GATE={cluster.folder / 'gate'}")
    wait_until(lambda: cluster.node("one")["leases"] >= 2, "the job runs")
    backup = Backup(cluster)
    backup.make()
    (cluster.folder / "gate").touch()
    followed = cluster.run("job", "stream", "nightly", "--tolerate")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    return backup


@pytest.mark.parametrize("form", ["text", "parquet"])
def test_a_job_that_had_ended_after_the_backup_ends_again_over_its_own_output(
    cluster: ServedCluster, form: str
) -> None:
    backup = end_after_the_backup(cluster, form)
    written, stamp = cluster.output.read_bytes(), cluster.output.stat().st_mtime_ns
    failed = (cluster.folder / "failed_items.csv").read_text()
    assert written and failed
    backup.restore()
    followed = cluster.run("job", "stream", "nightly", "--tolerate")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert (cluster.output.read_bytes(), cluster.output.stat().st_mtime_ns) == (written, stamp)
    assert (cluster.folder / "failed_items.csv").read_text() == failed
    message = cluster.job("nightly")["steps"][0]["message"]
    assert "does not touch it" not in message and "failed_items.csv" in message


@pytest.mark.parametrize("how", ["longer", "as long"])
def test_an_output_that_was_changed_after_the_backup_is_left_alone_and_the_way_on_is_told(
    cluster: ServedCluster, how: str
) -> None:
    backup = end_after_the_backup(cluster)
    written = cluster.output.read_bytes()
    changed = written + b"a line of somebody's own\n" if how == "longer" else b"g" + written[1:]
    cluster.output.write_bytes(changed)
    backup.restore()
    followed = cluster.run("job", "stream", "nightly", "--tolerate")
    told = followed.stdout + followed.stderr
    assert followed.returncode == 1, told
    assert "is not what this job writes" in told and "windrow job retry nightly" in told, told
    assert cluster.output.read_bytes() == changed
    cluster.output.rename(cluster.folder / "mine.txt")
    done = cluster.job("nightly")["steps"][0]["mini_batches"]
    assert cluster.run("job", "retry", "nightly").returncode == 0
    followed = cluster.run("job", "stream", "nightly", "--tolerate")
    assert followed.returncode == 0, followed.stdout + followed.stderr
    assert cluster.output.read_bytes() == written
    assert cluster.job("nightly")["steps"][0]["mini_batches"]["succeeded"] == done["succeeded"]
