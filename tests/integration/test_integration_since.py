"""`--since` and `--resume_from`: what an earlier run has done is not done again, and all rows come together."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from functools import partial
from pathlib import Path

import pytest
from embedded_run import EmbeddedRun, check_counts, unreadable, wait_until
from moved_clock import DAY_S, MovedClock
from opened_store import open_store
from windrow import Client
from windrow import run as windrow_run
from windrow.errors import JobWarning, RequestRefused, UsageError
from windrow.spec import EffectiveJob
from windrow_command import windrow
from windrow_master.files.state_files import StateFiles
from windrow_master.shell.earlier import EarlierJobs
from windrow_master.store.records import ReopenedJob, Reopening

SCRIPT = """
import os, time

def run(mini_batch):
    rows = []
    for path in mini_batch:
        name, text = os.path.basename(path), open(path).read()
        with open(os.path.join({ran!r}, name), "a") as file:
            file.write("x")
        if text == "bad":
            raise ValueError("bad: " + name)
        while text == "wait" and os.path.exists({gate!r}):
            time.sleep(0.01)
        rows.append(name + " " + text)
    return rows
"""


class SinceRun(EmbeddedRun):
    """A run whose script notes which files it was given."""

    def __init__(self, folder: Path, files: int, **more: object) -> None:
        self.ran = folder / "ran"
        self.gate = folder / "gate"
        script = SCRIPT.format(ran=str(self.ran), gate=str(self.gate))
        super().__init__(folder, script, files, size=2, **more)  # type: ignore[arg-type]
        self.ran.mkdir()

    def write(self, name: str, text: str) -> None:
        (self.folder / "data" / name).write_text(text)

    def take_ran(self) -> dict[str, int]:
        """How often each file was given to the script since the last look."""
        found = {path.name: path.stat().st_size for path in self.ran.iterdir()}
        for path in self.ran.iterdir():
            path.unlink()
        return found

    def wait_till_old(self) -> None:
        """So long that what has been written counts as unchanged by a run that begins now."""
        newest = max(path.stat().st_ctime for path in (self.folder / "data").iterdir())
        wait_until(lambda: time.time() > newest + 2.1, "the files are older than a clock's tick")

    def rows(self) -> list[str]:
        return self.output.read_text().splitlines()

    def windrow(self, *arguments: str) -> str:
        """What a command prints."""
        done = windrow(*arguments, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def job_ids(self) -> list[str]:
        """Of all runs, in their order."""
        database = f"file:{self.state}/windrow.db?mode=ro"
        with contextlib.closing(sqlite3.connect(database, uri=True)) as connection:
            return [job_id for (job_id,) in connection.execute("SELECT job_id FROM job ORDER BY job_key")]


@pytest.fixture
def run(tmp_path: Path) -> SinceRun:
    """Ten files, two a mini-batch; the sixth fails."""
    run = SinceRun(tmp_path / "run", 10, settings="error_threshold: -1\n    retry_settings: {max_retries: 0}")
    run.write("f00005", "bad")
    run.wait_till_old()
    return run


def test_the_next_run_does_what_is_new_has_changed_or_failed(run: SinceRun) -> None:
    code, text = run.run("--since", "last")
    assert code == 0, text
    assert len(run.take_ran()) == 10
    run.write("f00005", "mended")
    run.write("f00000", "changed")
    run.write("new", "new")
    (run.folder / "data" / "f00009").unlink()
    run.wait_till_old()
    code, text = run.run("--since", "last")
    assert code == 0, text
    assert run.take_ran() == dict.fromkeys(("f00000", "f00001", "f00004", "f00005", "f00008", "new"), 1)
    expected = {f"f{at:05} {at}" for at in (1, 2, 3, 4, 6, 7, 8)} | {"f00000 changed", "f00005 mended", "new new"}
    assert len(run.rows()) == 10 and run.rows() == sorted(expected), "in the order of the input"
    assert "note: " in text and "warning: " not in text
    assert (
        "are taken over: 4 of 10 files. The other 6 files run: 1 new, 1 changed since, 2 without a result there, "
        "2 in a mini-batch that is no longer the same."
    ) in text
    assert "10 items in 5 mini-batches (2 taken over)" in text
    code, text = run.run("--since", "last")
    assert code == 0, text
    assert run.take_ran() == {} and set(run.rows()) == expected
    assert "are taken over: 10 of 10 files." in text and "items/s" not in text
    second, third = run.job_ids()[-2:]
    told = json.loads(run.windrow("job", "show", second, "--format", "json"))["steps"][0]
    assert (told["items"]["ok"], told["items"]["taken_over"], told["mini_batches"]["taken_over"]) == (10, 4, 2)
    assert "TAKEN OVER" in run.windrow("job", "show", second)
    assert f"It did not run: its result was taken over from job {second}." in run.windrow("mb", "show", third, "0")
    result = (run.state / "jobs" / third / "logs" / "score" / "job_result.txt").read_text()
    assert "10: 10 ok, 0 failed" in result
    # Without the option, all of it runs.
    assert run.run()[0] == 0 and len(run.take_ran()) == 10


def test_repaired_code_finishes_what_another_job_left(run: SinceRun) -> None:
    job = run.folder / "job.yml"
    job.write_text(job.read_text().replace("error_threshold: -1", "error_threshold: 0"))
    code, text = run.run()
    assert code == 1, text
    run.take_ran()
    (before,) = run.job_ids()
    script = run.folder / "code" / "entry.py"
    script.write_text(script.read_text().replace('if text == "bad"', 'if text == "worse"'))
    job.write_text(job.read_text().replace("entry.py", f"entry.py\n      program_arguments: --resume_from {before}"))
    code, text = run.run("--code-change", "mix")
    assert code == 0, text
    assert (
        f"results of job {before} stay as they are, although this has changed since: the code: entry.py (changed)."
        in text
    )
    again = run.take_ran()
    assert {"f00004", "f00005"} <= again.keys()
    assert f"are taken over: {10 - len(again)} of 10 files" in text and len(again) < 10
    assert sorted(run.rows()) == [f"f{at:05} {'bad' if at == 5 else at}" for at in range(10)]


def test_a_repaired_job_file_goes_on_with_what_the_job_has_taken_over(run: SinceRun) -> None:
    assert run.run()[0] == 0
    run.write("new", "bad")
    run.write("f00005", "fine")
    run.wait_till_old()
    job, script = run.folder / "job.yml", run.folder / "code" / "entry.py"
    job.write_text(job.read_text().replace("error_threshold: -1", "error_threshold: 0"))
    assert run.run("--since", "last")[0] == 1
    before, second = run.job_ids()
    run.take_ran()
    script.write_text(script.read_text().replace('if text == "bad"', 'if text == "worse"'))
    text = run.windrow("job", "retry", second, "--file", "job.yml")
    assert f"It did not run: its result was taken over from job {before}." in run.windrow("mb", "show", second, "0"), (
        text
    )
    again = run.take_ran()
    assert "new" in again and not again.keys() & {"f00000", "f00001", "f00002", "f00003", "f00006"}
    assert sorted(run.rows()) == [f"f{at:05} {'fine' if at == 5 else at}" for at in range(10)] + ["new bad"]


def rewrite_script(run: SinceRun) -> None:
    """Other code, and as many rows."""
    script = run.folder / "code" / "entry.py"
    script.write_text(script.read_text().replace('name + " " + text', 'name + " " + text + "!"'))


def test_changed_code_asks_what_happens_to_the_rows_that_it_did_not_make(run: SinceRun) -> None:
    assert run.run()[0] == 0
    (before,) = run.job_ids()
    (old,) = (run.state / "artifacts").iterdir()
    rewrite_script(run)
    run.take_ran()
    code, text = run.run("--since", "last")
    assert code == 2 and run.take_ran() == {} and run.job_ids() == [before]
    assert f"results of job {before}, but what made them has changed since: the code: entry.py (changed)." in text
    assert "with --code-change rerun everything runs again, with --code-change mix" in text
    with unreadable(old) as archive:
        code, text = run.run("--since", "last", "--code-change", "mix")
        assert code == 2 and run.job_ids() == [before], text
        assert f"whether its code is still that which made them is not known: the archive {archive} on" in text
        assert "cannot be read (Is a directory)" in text and "submit the job as a new one" in text
    (new,) = set((run.state / "artifacts").iterdir()) - {old}
    with unreadable(new):
        code, text = run.run("--since", "last", "--code-change", "mix")
        assert code == 2 and f"The archive {new} on the master's machine cannot be read (Is a directory)." in text, text
    code, text = run.run("--since", "last", "--code-change", "mix")
    assert code == 0, text
    assert run.take_ran().keys() == {"f00004", "f00005"}
    assert run.rows() == [f"f{at:05} {at}{'!' * (at == 4)}" for at in range(10) if at != 5]
    code, text = run.run("--since", before, "--code-change", "rerun")
    assert code == 0, text
    assert len(run.take_ran()) == 10 and all(row.endswith("!") for row in run.rows()) and len(run.rows()) == 9


def test_a_run_from_python_takes_over_results_too(run: SinceRun) -> None:
    assert run.run()[0] == 0
    rewrite_script(run)
    run.take_ran()
    own = partial(
        windrow_run, run.folder / "job.yml", state=run.state, environments="own", since="last", progress=False
    )
    with pytest.raises(RequestRefused, match=r"changed since: the code: entry\.py") as refused:
        own()
    assert refused.value.reason == "CODE_CHANGED" and run.take_ran() == {}
    with pytest.raises(UsageError, match="must be one of 'ask', 'rerun', 'mix'"):
        own(code_change="maybe")
    with pytest.warns(JobWarning) as told:
        ended = own(code_change="mix")
    assert ended.succeeded
    (warned,) = (str(one.message) for one in told)
    assert "stay as they are, although this has changed since" in warned
    (note,) = ended.job.notes
    assert "are taken over: 8 of 10 files" in note
    assert run.take_ran().keys() == {"f00004", "f00005"}


def test_rows_that_were_mixed_in_keep_the_code_that_made_them(run: SinceRun) -> None:
    assert run.run()[0] == 0
    (before,) = run.job_ids()
    rewrite_script(run)
    assert run.run("--since", "last", "--code-change", "mix")[0] == 0
    run.take_ran()
    for _ in range(2):
        mixed = run.job_ids()[-1]
        code, text = run.run("--since", "last")
        assert code == 2 and run.take_ran() == {}, text
        assert f"results of job {before} (through job {mixed}), but what made them has changed since: the code" in text
        text = run.windrow("run", "job.yml", "--since", "last", "--dry-run")
        assert f"what made the results of job {before} (through job {mixed}) has changed since: the code" in text
        code, text = run.run("--since", "last", "--code-change", "mix")
        assert code == 0, text
        assert f"results of job {before} (through job {mixed}) stay as they are" in text
        run.take_ran()
    code, text = run.run("--since", "last", "--code-change", "rerun")
    assert code == 0, text
    assert len(run.take_ran()) == 10 and all(row.endswith("!") for row in run.rows())
    # Nothing of the old code is left.
    code, text = run.run("--since", "last")
    assert code == 0 and run.take_ran().keys() == {"f00004", "f00005"}, text


def test_results_of_the_code_that_is_back_are_those_that_it_would_make(run: SinceRun) -> None:
    run.write("f00005", "fine")
    run.wait_till_old()
    script = run.folder / "code" / "entry.py"
    first = script.read_text()
    assert run.run()[0] == 0
    rewrite_script(run)
    assert run.run("--since", "last", "--code-change", "mix")[0] == 0
    run.take_ran()
    script.write_text(first)
    code, text = run.run("--since", "last")
    assert code == 0 and run.take_ran() == {}, text


def test_changed_settings_count_as_changed_code_unless_they_decide_no_row(run: SinceRun) -> None:
    job = run.folder / "job.yml"
    plain = job.read_text()

    def with_arguments(words: str) -> None:
        job.write_text(plain.replace("entry.py", f"entry.py\n      program_arguments: {words}"))

    with_arguments("--cut 5 --run_max_try 3")
    assert run.run()[0] == 0
    with_arguments("--cut 5 --run_max_try 2")
    code, text = run.run("--since", "last")
    assert code == 0 and "are taken over: 8 of 10 files" in text, text
    with_arguments("--cut 7")
    code, text = run.run("--since", "last")
    assert code == 2 and "has changed since: arguments: --cut 5 is now --cut 7." in text


def test_a_run_that_was_to_run_all_of_it_again_continues(run: SinceRun) -> None:
    assert run.run()[0] == 0
    rewrite_script(run)
    run.gate.touch()
    run.write("f00009", "wait")
    run.take_ran()
    command = ("--since", "last", "--code-change", "rerun", "--slots", "1")
    run.start(*command)
    wait_until(lambda: "f00009" in {path.name for path in run.ran.iterdir()}, "the last file is running")
    run.kill("master", "cli", "agent")
    run.finish()
    run.gate.unlink()
    code, text = run.run(*command)
    assert code == 0 and "ontinu" in text, text
    assert len(run.job_ids()) == 2 and len(run.rows()) == 9


def test_masters_killed_in_the_middle_lose_and_double_nothing(tmp_path: Path) -> None:
    run = SinceRun(tmp_path / "run", 40)
    run.wait_till_old()
    assert run.run()[0] == 0
    run.take_ran()
    run.gate.touch()
    for at in range(6):
        run.write(f"new{at}", "wait" if at > 1 else "quick")
    run.start("--since", "last", "--slots", "2")
    wait_until(lambda: run.committed() >= 20 + 21, "the first of the new files")
    run.kill("master", "cli", "agent")
    run.finish()
    run.gate.unlink()
    code, text = run.run("--since", "last", "--slots", "2")
    assert code == 0, text
    assert "ontinu" in text
    assert not {name for name in run.take_ran() if name.startswith("f")}
    assert len(run.rows()) == 46 and len(set(run.rows())) == 46
    assert len(run.counters()) == 2 and run.counters()[1]["succeeded"] == 23


def test_the_earlier_jobs_folder_may_go_afterwards(run: SinceRun) -> None:
    run.write("f00005", "fine")
    run.wait_till_old()
    assert run.run()[0] == 0
    run.take_ran()
    (before,) = run.job_ids()
    # Rows that are gone before are made again, rows that were taken over are this run's own.
    for path in (run.state / "jobs" / before).rglob("*.rows"):
        path.unlink()
    code, text = run.run("--since", before)
    assert code == 0, text
    assert len(run.take_ran()) == 10 and len(run.rows()) == 10
    check = run.state / "jobs" / run.job_ids()[-1]
    code, text = run.run("--since", "last")
    assert code == 0 and run.take_ran() == {}, text
    for path in check.rglob("*.rows"):
        path.unlink()
    run.output.unlink()
    code, text = run.run("--since", "last")
    assert code == 0 and run.take_ran() == {} and len(run.rows()) == 10, text


def test_rows_that_have_rotted_since_are_made_again(run: SinceRun) -> None:
    run.write("f00005", "fine")
    run.wait_till_old()
    assert run.run()[0] == 0
    run.take_ran()
    (segment,) = run.state.glob("jobs/*/steps/*/segments/*.rows")
    content = bytearray(segment.read_bytes())
    content[3] ^= 1
    segment.write_bytes(content)
    code, text = run.run("--since", "last")
    assert code == 0, text
    # One mini-batch: which one's rows lie first depends on who was done first.
    again = sorted(run.take_ran())
    assert len(again) == 2 and int(again[0][1:]) % 2 == 0 and int(again[1][1:]) == int(again[0][1:]) + 1
    assert sorted(run.rows()) == [f"f{at:05} {'fine' if at == 5 else at}" for at in range(10)]


def test_options_without_an_earlier_job_are_told(run: SinceRun) -> None:
    for more in ((), ("--dry-run",)):
        code, text = run.run("--code-change", "mix", *more)
        assert code == 2 and "--code-change mix: no job is named whose results are taken over. Add --since last" in text
    said = (
        r'code_change="mix": no job is named whose results are taken over. Add since="last" \(or since=JOB\), or leave'
    )
    with pytest.raises(UsageError, match=said):
        windrow_run(run.folder / "job.yml", state=run.state, code_change="mix")
    with Client(state=run.state, new=True) as client, pytest.raises(UsageError, match=said):
        client.submit(run.folder / "job.yml", code_change="mix")
    assert run.take_ran() == {} and run.job_ids() == []
    none = "--since last: no job of this job file has ended with a result yet"
    code, text = run.run("--since", "last")
    assert code == 0 and none in text, text
    code, text = run.run("--since", "last")
    assert code == 0 and none not in text, text


def test_what_cannot_be_taken_over_is_told_before_anything_runs(run: SinceRun) -> None:
    code, text = run.run("--since", "nobody")
    assert code == 2 and "nobody" in text
    assert run.run("--since", "last")[0] == 0
    run.take_ran()
    job = run.folder / "job.yml"
    plain = job.read_text()
    parquet = "entry.py\n      program_arguments: --append_row_format parquet"
    job.write_text(plain.replace("entry.py", parquet).replace("out.txt", "out.parquet"))
    code, text = run.run("--since", "last")
    assert code == 2 and "the form of its rows has changed" in text, text
    extra = 'outputs: {result: "${{parent.outputs.result}}", more: {type: uri_folder}}'
    job.write_text(plain.replace('outputs: {result: "${{parent.outputs.result}}"}', extra))
    code, text = run.run("--since", "last")
    assert code == 2 and "output 'more' are in that job's own folder" in text, text
    assert run.take_ran() == {}
    assert check_counts(run)["succeeded"] == 4


def test_nothing_is_taken_over_from_a_step_that_has_begun_anew_meanwhile(run: SinceRun) -> None:
    assert run.run()[0] == 0
    (before,) = run.job_ids()
    with contextlib.closing(open_store(run.state)) as store:
        jobs, job = EarlierJobs(store.reader(), StateFiles(run.state)), store.reader().job_by_id(before)
        assert job is not None
        (step,) = EffectiveJob.from_json(job.document).steps
        found = jobs.find(step._replace(resume_from=before))
        assert found is not None
        assert [taken.mini_batch for taken in jobs.outcomes(found, [(7, 0), (8, 1)])] == [7, 8]
        anew = {found.row.step_id: Reopening.RESUMED}
        store.reopen(ReopenedJob(job.job_key, job.generation, job.document, job.run_digest, anew))
        assert jobs.outcomes(found, [(7, 0), (8, 1)]) == ()


def test_what_was_changed_after_the_clock_was_set_back_runs_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedClock(tmp_path)
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    run = SinceRun(tmp_path / "run", 6)
    run.wait_till_old()
    clock.set(DAY_S)
    code, text = run.run("--since", "last")
    assert code == 0, text
    # By the clock, this was before the first run.
    clock.set(0)
    run.write("f00003", "changed")
    code, text = run.run("--since", "last")
    assert code == 0, text
    assert run.take_ran()["f00003"] == 2
    expected = [f"f0000{number} {'changed' if number == 3 else number}" for number in range(6)]
    assert run.rows() == expected
    assert "are taken over: 4 of 6 files" in text, "what is older than both runs counts as unchanged"
