"""The commands of the documentation that need no containers, run as they stand; and none is forgotten.

A stranger copies them. What stands for something else is put in: JOB, and the address of a master.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from documented_commands import (
    API_KEY,
    AS_A_WHOLE,
    BACKUP,
    COMMENTED,
    CSV,
    DISK,
    ELSEWHERE,
    GROUPS,
    IN_A_CLUSTER,
    IN_A_PROJECT,
    MAP,
    PAGES,
    PUBLISH,
    PYTHON,
    README,
    RETRY,
    ROOT,
    SINCE,
    SINGLE_ELSEWHERE,
    SINGLE_IN_A_CLUSTER,
    WATCH,
    WHY_FAILED,
    block,
    blocks_of,
    commented_commands,
    single_commands,
    type_line,
    write_project,
)

BIN = Path(sys.executable).parent
FAILS_WHILE = "broken"
"""A file of the project; while it is there, the script fails for one text."""


def test_each_block_of_commands_is_run_or_says_why_not() -> None:
    found = [one.name for page in PAGES for one in blocks_of(page)]
    assert len(found) > 20
    listed = [*IN_A_CLUSTER, *IN_A_PROJECT, *ELSEWHERE]
    listed += [one.name for page in AS_A_WHOLE for one in blocks_of(page)]
    assert sorted(found) == sorted(listed), "list a new block in tests/documented_commands.py"


def test_each_command_of_docker_is_run_or_says_why_not() -> None:
    found = {command for page in PAGES for command in single_commands(page)}
    found |= {command for file in COMMENTED for command in commented_commands(file)}
    in_blocks = {line.split("  ")[0] for name in IN_A_CLUSTER for line in block(*name).lines}
    listed = {*SINGLE_IN_A_CLUSTER, *SINGLE_ELSEWHERE}
    assert found - in_blocks - listed == set(), "list a new command in tests/documented_commands.py"
    assert listed - found == set(), "these commands are in no page any more"


def test_nothing_that_a_page_tells_to_run_deletes_a_cluster() -> None:
    commands = [line for page in PAGES for one in blocks_of(page) for line in one.lines]
    assert not [line for line in commands if re.search(r"(?<!image )(?<!job )prune\b|down .*-v\b|volume rm", line)]
    for line in (line for line in commands if "image prune" in line):
        assert "--filter label=org.opencontainers.image.title=windrow" in line
        assert not re.search(r" (-a|--all)\b", line)


class Project:
    """A folder with the job of the README, for the commands of a page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write_project(folder)
        for number in range(30):
            (folder / "texts" / f"{number:02d}.txt").write_text("line\n" * number)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("WINDROW_")},
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "BROWSER": "true",
            "NO_COLOR": "1",
        }

    def run(self, command: str, *codes: int) -> str:
        """A line of a page, in a shell; what it says. `codes`: those it may end with, 0 where none is given."""
        if re.search(r"\bJOB\b", command):
            command = re.sub(r"\bJOB\b", self.newest_job(), command)
        done = type_line(command, self.folder, self.environment, 100)
        assert done.returncode in (codes or (0,)), f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def newest_job(self) -> str:
        """The name of the last job."""
        jobs = json.loads(self.run("windrow job list --format json"))
        return str(jobs[0]["job_id"])

    def fail(self, number: int) -> None:
        """The script fails for a text, while there is a file for it; each item is a mini-batch of its own."""
        script = self.folder / "code" / "sizes.py"
        guard = f'if name.endswith("{number:02d}.txt") and Path({str(self.folder / FAILS_WHILE)!r}).exists():'
        wrong = f'        {guard}\n            raise OSError("not now")\n'
        script.write_text(script.read_text().replace("        text =", f"{wrong}        text ="))
        job = self.folder / "job.yml"
        job.write_text(
            job.read_text()
            .replace('mini_batch_size: "10"', 'mini_batch_size: "1"')
            .replace("mini_batch_error_threshold: 5", "mini_batch_error_threshold: 0")
            .replace("max_retries: 2", "max_retries: 0")
        )
        (self.folder / FAILS_WHILE).touch()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A folder whose name is not the plainest one."""
    folder = tmp_path / "my project"
    folder.mkdir()
    return Project(folder)


def test_the_run_of_the_readme(project: Project) -> None:
    for line in block(README, "windrow run job.yml").lines:
        project.run(line)
    rows = (project.folder / "sizes.csv").read_text().splitlines()
    assert rows == ["file,lines,characters"] + [f"{number:02d}.txt,{number},{5 * number}" for number in range(30)]


def test_a_backup_is_brought_back(project: Project) -> None:
    project.run("windrow run job.yml")
    for line in block(BACKUP, "windrow backup backups/monday").lines:
        project.run(line)
    found = [project.run(f"windrow job list --format json --state {state}") for state in (".windrow", "restored")]
    assert found[0] == found[1] and len(json.loads(found[0])) == 1


def test_old_jobs_are_deleted(project: Project) -> None:
    project.run("windrow run job.yml")
    for line in block(DISK, "windrow job prune --older-than 30d --keep-last 100 --dry-run").lines:
        told = project.run(line)
    assert "is deleted" in told
    assert json.loads(project.run("windrow job list --format json")) == []
    assert (project.folder / "sizes.csv").exists()


def test_only_what_is_new(project: Project) -> None:
    project.run("windrow run job.yml")
    for line in block(SINCE, "windrow run job.yml --since last").lines:
        assert "taken over" in project.run(line)


def test_retries(project: Project) -> None:
    project.fail(17)
    broken = project.folder / FAILS_WHILE
    for line in block(RETRY, "windrow job retry JOB").lines:
        broken.touch()
        project.run("windrow run job.yml --restart", 1)
        broken.unlink()
        assert "Completed: 30 items" in project.run(line)


def test_a_published_pipeline(project: Project) -> None:
    name = 'windrow pipeline publish job.yml --name nightly --description "Scores the new images"'
    published, listed, shown, run = map(project.run, block(PUBLISH, name).lines)
    assert published.startswith("nightly:1\n") and "nightly  1 " in listed
    assert re.search(r"description +Scores the new images", shown)
    assert "Completed" in run


def test_watching(project: Project) -> None:
    project.run("windrow run job.yml")
    job = project.newest_job()
    no_running, stream, logs, wait = block(WATCH, "windrow job list --only running").lines
    assert "No job fits" in project.run(no_running)
    assert "Completed: 30 items" in project.run(stream)
    assert "Completed: 30 items ok" in project.run(logs)
    assert project.run(wait).startswith(f"{job} is completed: 30 of 30 items ok, after ")


def test_seeing_everything_at_once(project: Project) -> None:
    project.run("windrow run job.yml")
    job = project.newest_job()
    jobs, workers, once = map(project.run, block(WATCH, "windrow top").lines)
    assert job in jobs and job in once
    assert "No run is live." in workers


def test_what_scripts_log(project: Project) -> None:
    (project.folder / "code" / "sizes.py").write_text("\n".join(block(WATCH, "from pathlib import Path").lines))
    project.run("windrow run job.yml")
    table, as_json = map(project.run, block(WATCH, "windrow job show JOB --metrics").lines)
    assert re.search(r"sizes +characters +\d+ +3 +225 +1225 ", table)
    assert [(one["name"], one["count"]) for one in json.loads(as_json)] == [("characters", 3)]


def test_looking_closer(project: Project) -> None:
    project.fail(17)
    project.run("windrow run job.yml", 1)
    for line in block(WHY_FAILED, "windrow mb list JOB --only failed").lines:
        # What is replayed fails once more, and in the debugger there is nobody.
        told = project.run(line, 1) if "mb replay" in line else project.run(line)
        assert "not now" in told or "report" in line, told


def test_passing_a_failure_on(project: Project) -> None:
    project.fail(17)
    project.run("windrow run job.yml", 1)
    one, each, again = block(WHY_FAILED, "windrow mb bundle JOB 17 --item 0 -o bug.zip").lines
    assert project.run(one).startswith("bug.zip: mini-batch 17")
    assert ".zip: mini-batch 17" in project.run(each)
    assert "not now" in project.run(again, 1)


def test_data_assets_and_models(project: Project) -> None:
    (project.folder / "flowers").mkdir()
    (project.folder / "flowers" / "rose").touch()
    (project.folder / "net").mkdir()
    (project.folder / "net" / "weights").touch()
    (project.folder / "model.yml").write_text("name: net\ntype: custom_model\npath: ./net\n")
    told = [
        project.run(line)
        for line in block("docs/job-file.md", "windrow data create --name flowers --path ./flowers").lines
    ]
    assert "flowers:1" in told[0] and "net" in told[1] and "flowers" in told[2]


def test_an_api_key_from_a_file(project: Project) -> None:
    home = project.folder / "home"
    (home / ".config" / "my-service").mkdir(parents=True)
    (home / ".config" / "my-service" / "key").write_text("secret\n")
    project.environment["HOME"] = str(home)
    (project.folder / "code" / "sizes.py").write_text("\n".join(block(API_KEY, "from pathlib import Path").lines))
    project.run("windrow run job.yml")
    assert (project.folder / "sizes.csv").read_text().startswith("file,length\n00.txt,6\n")


def test_a_csv(project: Project) -> None:
    page = (ROOT / CSV).read_text()
    (project.folder / "job.yml").write_text(page.split("```yaml\n")[1].split("```")[0])
    (project.folder / "code" / "score.py").write_text(page.split("```python\n")[1].split("```")[0])
    (project.folder / "orders.csv").write_text("order,price,pieces\n1,2.5,2\n2,0.5,3\n")
    for line in block(CSV, "windrow run job.yml").lines:
        project.run(line)
    assert (project.folder / "totals.csv").read_text() == "order,price,pieces,total\n1,2.5,2,5.0\n2,0.5,3,1.5\n"
    (project.folder / "orders.csv").write_text("id,price,pieces\n007,2.5,2\n")
    (project.folder / "ids").mkdir()
    (project.folder / "ids" / "MLTable").write_text("\n".join(block(CSV, "```yaml").lines[1:-1]))
    project.run("windrow run code/score.py ids -o ids.csv")
    assert (project.folder / "ids.csv").read_text() == "id,price,pieces,total\n007,2.5,2,5.0\n"


def test_a_model_for_each_group(project: Project) -> None:
    page = (ROOT / GROUPS).read_text()
    (project.folder / "groups.yml").write_text(page.split("```yaml\n")[1].split("```")[0])
    (project.folder / "training").mkdir()
    (project.folder / "training" / "train.py").write_text("\n".join(block(GROUPS, "import argparse").lines))
    rows = "".join(f"{number % 3},2026-01-01,{number}\n" for number in range(30))
    (project.folder / "sales.csv").write_text(f"store,day,amount\n{rows}")
    for line in block(GROUPS, "pip install 'windrow[partition]'").lines[1:]:
        assert "Completed: 30 items in 3 mini-batches" in project.run(line)
    assert sorted(file.name for file in (project.folder / "models").iterdir()) == ["0.pkl", "1.pkl", "2.pkl"]


@contextlib.contextmanager
def started(*command: str, folder: Path, environment: dict[str, str]) -> Iterator[IO[str]]:
    """A windrow command that goes on; what it prints. It ends with the context."""
    with subprocess.Popen(
        [BIN / "windrow", *command], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout
        finally:
            process.terminate()


def test_python(project: Project, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/socket"
    text = "\n".join(block(PYTHON, "import windrow").lines)
    assert "jobs.score.mini_batch_size" in text and '"127.0.0.1:8470"' in text
    job = project.folder / "job.yml"
    job.write_text(job.read_text().replace("  sizes:\n", "  score:\n"))
    shown = text.replace("127.0.0.1:8470", address).replace("        ...", "        print(row)\nprint(len(frame))")
    (project.folder / "tried.py").write_text(shown)
    store = tmp_path / "store"
    store.mkdir()
    served = ("master", "--state", "state", "--listen", address, "--datastore", f"default={store}")
    with started(*served, folder=tmp_path, environment=project.environment) as master:
        assert json.loads(master.readline())["ready"]
        with started("agent", "--master", address, folder=tmp_path, environment=project.environment):
            told = project.run(f"{shlex.quote(sys.executable)} tried.py")
    assert "29.txt,29,145" in told and told.rstrip().splitlines()[-1] in ("29", "30")


def test_a_function(project: Project) -> None:
    (project.folder / "tried.py").write_text("\n".join(block(MAP, "import windrow").lines))
    assert project.run(f"{shlex.quote(sys.executable)} tried.py").startswith("[0, 1, 4]")


def test_windrow_ml(project: Project) -> None:
    (project.folder / "texts").rename(project.folder / "images")
    (project.folder / "code" / "sizes.py").rename(project.folder / "code" / "score.py")
    (project.folder / "tried.py").write_text(
        "\n".join(block(PYTHON, "from windrow.ml import Input, MLClient, Output").lines)
    )
    assert "Status: Completed" in project.run(f"{shlex.quote(sys.executable)} tried.py")
    (rows,) = (project.folder / "named-outputs").rglob("*.txt")
    assert len(rows.read_text().splitlines()) == 30
