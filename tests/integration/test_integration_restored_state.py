"""What a state that is brought back from a backup finds in the world that went on without it: sorted rows that went,
data that came, assets, results for reuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from embedded_run import DEADLINE_S, EmbeddedRun, wait_until
from served import Served
from test_integration_partitions import ROWS, TABLE, job_of
from upload_bench import FILES, Laptop, fill, finished, uploads_of
from windrow.sdk.job import JobState
from windrow.spec import load_job
from windrow_command import windrow


class Backup:
    """A copy of the state folder of a served master, made while it was stopped."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._copy = served.folder / "backup"
        self._end()
        shutil.copytree(served.state, self._copy)
        served.start_master()

    def restore(self) -> None:
        """The master ends, and another one starts over the copy."""
        self._end()
        shutil.rmtree(self._served.state)
        shutil.copytree(self._copy, self._served.state)
        self._served.start_master()

    def _end(self) -> None:
        master = self._served.master
        assert master is not None
        master.terminate()
        master.wait(DEADLINE_S)


GATED = """\
import os, time

def run(rows, context):
    while os.path.exists({gate!r}):
        time.sleep(0.01)
    return [f"{{context.partition_key_value['k']}},{{n}}" for n in rows['n']]
"""


def test_a_step_whose_sorted_rows_went_after_the_backup_fails_and_says_what_to_do(
    served: Served, tmp_path: Path
) -> None:
    assert served.datastore is not None
    gate = tmp_path / "gate"
    gate.touch()
    data = fill(served.datastore / "table", {"a.csv": TABLE})
    job = job_of(tmp_path / "laptop", data)
    (tmp_path / "laptop" / "code" / "score.py").write_text(GATED.format(gate=str(gate)))
    served.start_agent("one")
    with served.client() as client:
        job_id = client.submit(load_job(job, embedded=False)).job_id
        wait_until(lambda: client.get(job_id).mini_batches.total == 1000, "all is divided")
    backup = Backup(served)
    gate.unlink()
    with served.client() as client:
        assert client.wait(job_id, timeout_s=DEADLINE_S).state is JobState.COMPLETED
        partitions = served.datastore / "partitions"
        wait_until(lambda: not list(partitions.iterdir()), "the sorted rows go with their job")
    backup.restore()
    with served.client() as client:
        ended = client.wait(job_id, timeout_s=DEADLINE_S, check=False)
        assert ended.state is JobState.FAILED
        assert "rows.arrow is damaged: it is gone" in ended.message and "--since" in ended.message, ended.message
        again = client.wait(client.submit(load_job(job, embedded=False)).job_id, timeout_s=DEADLINE_S)
        assert again.state is JobState.COMPLETED, again.message
        assert again.items.ok == ROWS


def test_data_that_came_after_the_backup_is_used_as_it_lies(served: Served, tmp_path: Path) -> None:
    """The restored master has no list of its files: nothing is sent again, and nothing is taken for unchanged."""
    laptop = Laptop(tmp_path / "laptop", FILES)
    served.start_agent("one")
    backup, expected = Backup(served), laptop.embedded_output()
    for name in ("first", "second"):
        created = laptop.run("job", "create", "job.yml", "--name", name, WINDROW_MASTER=served.address)
        assert created.returncode == 0, created.stderr
        assert finished(served, name) == expected
        if name == "first":
            placed = uploads_of(served)
            backup.restore()
    assert uploads_of(served) == placed


def test_an_asset_that_came_after_the_backup_is_not_known_and_its_number_is_given_again(
    served: Served, tmp_path: Path
) -> None:
    assert served.datastore is not None
    for name in ("one", "two", "other"):
        fill(served.datastore / name, {"a.txt": name.encode()})

    def data(*arguments: str) -> str:
        done = windrow("data", *arguments, "--master", served.address, "--format", "json", cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def create(folder: str) -> object:
        return json.loads(data("create", "--name", "numbers", "--path", f"{served.datastore}/{folder}"))["version"]

    assert create("one") == "1"
    backup = Backup(served)
    assert create("two") == "2"
    backup.restore()
    assert [asset["version"] for asset in json.loads(data("list", "--name", "numbers"))] == ["1"]
    assert create("other") == "2"
    assert json.loads(data("show", "numbers"))["path"] == f"{served.datastore}/other"


REUSING = """\
type: pipeline
settings: {force_rerun: false}
jobs:
  copy:
    type: command
    command: cat ${{inputs.data}}/* > ${{outputs.made}}/all
    inputs: {data: {type: uri_folder, path: ./data}}
    outputs: {made: {type: uri_folder, path: ./made}}
  score:
    type: parallel
    mini_batch_size: "1"
    input_data: ${{inputs.made}}
    inputs: {made: {type: uri_folder, path: "${{parent.jobs.copy.outputs.made}}"}}
    outputs: {rows: {type: uri_file, path: ./out.txt}}
    task: {type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
"""
READ = "def run(mini_batch):\n    return [open(path).read() for path in mini_batch]\n"


def test_nothing_is_reused_that_was_made_anew_after_the_backup(tmp_path: Path) -> None:
    """The notes say what lay there then. What lies there now has another content."""
    run = EmbeddedRun(tmp_path / "job", READ, 1)
    (run.folder / "job.yml").write_text(REUSING)
    for text in ("first", "second"):
        (run.folder / "data" / "f00000").write_text(text)
        code, said = run.run()
        assert code == 0, said
        assert run.output.read_text() == f"{text}\n"
        if text == "first":
            shutil.copytree(run.state, tmp_path / "backup", symlinks=True)
    shutil.rmtree(run.state)
    shutil.copytree(tmp_path / "backup", run.state, symlinks=True)
    (run.folder / "data" / "f00000").write_text("first")
    run.output.unlink()
    code, said = run.run()
    assert code == 0, said
    assert run.output.read_text() == "first\n"
