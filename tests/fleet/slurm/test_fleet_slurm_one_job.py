"""Master and agents in one batch job, by the script of the documentation as it stands."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster, wait_for

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "run-on-slurm.md"
SCRIPT = """\
import os, time

FOLDER = os.environ["RUNS"]

def note(what, mini_batch):
    with open(os.path.join(FOLDER, what), "a") as file:
        file.write("".join(os.path.basename(item) + "\\n" for item in mini_batch))

def run(mini_batch):
    note("begun", mini_batch)
    # The first half runs at once, the others once they may.
    while os.path.basename(mini_batch[0]) >= "030.txt" and not os.path.exists(os.path.join(FOLDER, "all")):
        time.sleep(0.1)
    note("finished", mini_batch)
    return [f"{os.path.basename(item)} {open(item).read()}" for item in mini_batch]
"""
JOB = """\
type: pipeline
jobs:
  step:
    type: parallel
    inputs:
      data: {type: uri_folder, path: ./data, mode: ro_mount}
    outputs:
      rows: {type: uri_file, mode: rw_mount, path: ./out/rows.txt}
    input_data: ${{inputs.data}}
    mini_batch_size: "5"
    resources: {instance_count: 3}
    max_concurrency_per_instance: 2
    environment_variables: {RUNS: RUNS_FOLDER}
    task:
      type: run_function
      code: ./script
      entry_script: entry.py
      append_row_to: ${{outputs.rows}}
"""
ITEMS = 60
WAIT_S = 180.0


@pytest.fixture
def project(cluster: SlurmCluster, tmp_path: Path) -> Path:
    """A folder with the script of the page, a job, and its data; a home with a profile, by which `windrow` is found."""
    home, folder = tmp_path / "home", tmp_path / "project"
    for made in (home, folder / "script", folder / "data"):
        made.mkdir(parents=True)
    folders = ":".join([str(Path(sys.executable).parent), *cluster.programs.folders])
    (home / ".bash_profile").write_text(f'export PATH="{folders}:$PATH"\n')
    (folder / "script" / "entry.py").write_text(SCRIPT)
    for number in range(ITEMS):
        (folder / "data" / f"{number:03d}.txt").write_text(str(number * number))
    (folder / "runs").mkdir()
    (folder / "job.yml").write_text(JOB.replace("RUNS_FOLDER", str(folder / "runs")))
    (script,) = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    (folder / "windrow-in-one-job.sh").write_text(script)
    return folder


def _submitted(cluster: SlurmCluster, project: Path) -> str:
    """The number of the batch job, which the command of the page submits."""
    command = re.search(r"^    (sbatch .*)$", PAGE.read_text(), re.M)
    assert command is not None
    home = project.parent / "home"
    words = command[1].split()
    # The home is that of the tests, and Slurm's environment for the profile of its user is left alone.
    options = ["--parsable", f"--export=HOME={home},WINDROW_ENVIRONMENTS=own", f"--chdir={project}"]
    number = cluster.run(words[0], *options, f"--output={project}/log-%j.txt", str(project / words[1]), *words[2:])
    return number.strip()


def _ended(cluster: SlurmCluster, project: Path, number: str) -> str:
    """How the batch job ended."""
    log = project / f"log-{number}.txt"
    wait_for("the job ends", lambda: cluster.job_state(number) not in ("PENDING", "RUNNING", "COMPLETING"), WAIT_S)
    return f"{cluster.job_state(number)}\n{log.read_text() if log.exists() else ''}"


def _check_rows(project: Path) -> None:
    rows = (project / "out" / "rows.txt").read_text().splitlines()
    assert sorted(rows) == [f"{number:03d}.txt {number * number}" for number in range(ITEMS)]


def _check_nothing_is_left(project: Path) -> None:
    """Neither tokens nor states nor folders of agents."""
    assert [path.name for path in (project.parent / "home").iterdir()] == [".bash_profile"]
    assert not [path for path in Path("/tmp").glob("windrow-*-my-job-*") if path.stat().st_uid == os.getuid()]


def test_one_batch_job_runs_master_agents_and_job(cluster: SlurmCluster, project: Path) -> None:
    (project / "runs" / "all").touch()
    told = _ended(cluster, project, _submitted(cluster, project))
    assert told.startswith("COMPLETED\n"), told
    _check_rows(project)
    _check_nothing_is_left(project)


def test_a_job_that_outlasts_its_batch_job_goes_on_in_the_next(cluster: SlurmCluster, project: Path) -> None:
    runs = project / "runs"
    first = _submitted(cluster, project)
    begun, finished = runs / "begun", runs / "finished"
    wait_for("some wait in run()", lambda: begun.exists() and "030.txt" in begun.read_text(), WAIT_S)
    wait_for("some have finished", finished.exists, WAIT_S)
    # As Slurm does at the time of --signal.
    cluster.run("scancel", "--batch", "--signal=TERM", first)
    told = _ended(cluster, project, first)
    assert "Submit the same again" in told
    assert not (project / "out" / "rows.txt").exists()
    done = set(finished.read_text().split())
    begun.unlink()
    (runs / "all").touch()
    told = _ended(cluster, project, _submitted(cluster, project))
    assert told.startswith("COMPLETED\n"), told
    _check_rows(project)
    assert done.isdisjoint(begun.read_text().split())
    _check_nothing_is_left(project)
