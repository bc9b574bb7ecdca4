"""`windrow job retry`: what is not done of a job runs again, into the same output, whatever is killed on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from cluster_commands import ServedCluster
from embedded_run import DEADLINE_S, WINDROW, EmbeddedRun, check_words, unreadable, wait_until

Make = Callable[..., EmbeddedRun]

SCRIPT = """\
import os

def run(mini_batch):
    rows = []
    for path in mini_batch:
        name = os.path.basename(path)
        with open(os.environ["RAN"], "a") as log:
            log.write(name + "\\n")
        if name.endswith("3") and not os.path.exists(os.environ["MENDED"]):
            raise ValueError("bad item " + name)
        while os.path.exists(os.environ["MENDED"]) and name.endswith("3") and os.path.exists(os.environ["GATE"]):
            pass
        rows.append(name)
    return rows
"""


def broken(make: Make, settings: str = "mini_batch_error_threshold: 0", files: int = 20) -> EmbeddedRun:
    """A job of which two items of twenty fail until the file `mended` is there."""
    run = make(SCRIPT, files, settings=settings)
    variables = {name: str(run.folder / name.lower()) for name in ("RAN", "MENDED", "GATE")}
    text = (run.folder / "job.yml").read_text()
    retries = "    retry_settings: {max_retries: 0}\n"
    where = f"    environment_variables: {json.dumps(variables)}\n"
    (run.folder / "job.yml").write_text(text.replace("    task:", f"{retries}{where}    task:"))
    return run


def ran(run: EmbeddedRun) -> list[str]:
    return (run.folder / "ran").read_text().split()


def job_of(run: EmbeddedRun) -> str:
    (folder,) = (run.state / "jobs").iterdir()
    return folder.name


def retry(run: EmbeddedRun, *options: str) -> tuple[int, str]:
    """`windrow job retry`, to its end."""
    return finished(start_retry(run, *options))


def start_retry(run: EmbeddedRun, *options: str) -> subprocess.Popen[str]:
    run.process = subprocess.Popen(
        [WINDROW, "job", "retry", job_of(run), *options],
        cwd=run.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return run.process


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    text, _ = process.communicate(timeout=DEADLINE_S)
    return process.returncode, text


def expected(files: int = 20) -> str:
    return "".join(f"f{number:05d}\n" for number in range(files))


def test_what_failed_and_what_was_cancelled_runs_again_and_nothing_else(make: Make) -> None:
    run = broken(make)
    code, text = run.run("--slots", "1")
    assert code == 1, text
    check_words(text, [f"windrow job retry {job_of(run)} --file job.yml"])
    done = set(ran(run)) - {"f00003"}
    (run.folder / "ran").unlink()
    (run.folder / "mended").touch()
    code, text = retry(run)
    assert code == 0, text
    assert run.output.read_text() == expected()
    # Rows that were on their way when the job failed may run twice; those that were committed never do.
    assert {"f00003", "f00013"} <= set(ran(run))
    assert not {"f00000", "f00001", "f00002"} & set(ran(run)) and len(done) >= 3
    assert not list(run.folder.glob("**/failed_items.csv"))
    code, text = retry(run)
    assert (code, "nothing is left to run" in text) == (2, True)


def test_tolerated_failures_are_retried_with_the_rows_that_are_there(make: Make) -> None:
    run = broken(make, "")
    code, text = run.run()
    assert code == 0, text
    assert len(run.output.read_text().splitlines()) == 18
    (run.folder / "ran").unlink()
    (run.folder / "mended").touch()
    code, text = retry(run)
    assert code == 0, text
    assert sorted(ran(run)) == ["f00003", "f00013"]
    assert run.output.read_text() == expected()
    check_words(text, ["18 mini-batches done before", "Completed: 20 items"])


def test_repaired_code_is_taken_from_the_job_file(make: Make) -> None:
    run = broken(make)
    assert run.run()[0] == 1
    code, text = retry(run)
    assert code == 1, "the code of the job is still the broken one\n" + text
    script = run.folder / "code" / "entry.py"
    script.write_text(script.read_text().replace('raise ValueError("bad item " + name)', "name = name.upper()"))
    with unreadable(next((run.state / "artifacts").iterdir())) as archive:
        code, text = retry(run, "--file", "job.yml")
        assert code == 2, text
        check_words(text, [f"is not known: the archive {archive} on the master's machine cannot be read"])
    code, text = retry(run, "--file", "job.yml")
    assert code == 0, text
    check_words(text, ["mini-batches stay as they are, although this has changed since: the code: entry.py (changed)"])
    assert " since it was submitted" in text and "items/" not in text, "a pace would count the time between"
    rows = run.output.read_text().splitlines()
    assert [row for row in rows if row.isupper()] == ["F00003", "F00013"]
    assert len(rows) == 20


def test_a_retry_runs_scripts_where_the_run_did(make: Make) -> None:
    run = broken(make)
    script = run.folder / "code" / "entry.py"
    script.write_text("import sys\n" + script.read_text().replace("rows.append(name)", "rows.append(sys.executable)"))
    python = run.folder / "own-python"
    python.symlink_to(Path(sys.executable).resolve())
    assert run.run("--python", "./own-python")[0] == 1
    (run.folder / "mended").touch()
    code, text = retry(run)
    assert code == 0, text
    assert set(run.output.read_text().splitlines()) == {str(python)}
    check_words(text, [f"Scripts run in {python}, as in the previous run"])


def test_a_retry_that_would_divide_the_input_otherwise_is_refused_and_costs_nothing(make: Make) -> None:
    run = broken(make)
    assert run.run()[0] == 1
    code, text = retry(run, "--file", "job.yml", "--set", "jobs.score.mini_batch_size=5")
    assert code == 2, text
    check_words(text, ["Step 'score' has rows that a retry keeps", "mini_batch_size"])
    (run.folder / "mended").touch()
    assert retry(run)[0] == 0
    assert run.output.read_text() == expected()


def test_a_retry_outlives_the_death_of_everything(make: Make) -> None:
    run = broken(make, "")
    assert run.run("--slots", "1")[0] == 0
    for name in ("mended", "gate"):
        (run.folder / name).touch()
    (run.folder / "ran").unlink()
    process = start_retry(run, "--slots", "1")
    wait_until((run.folder / "ran").exists, "it runs")
    run.kill("cli", "master", "agent")
    finished(process)
    wait_until(lambda: not run.strays(), "nothing is left")
    (run.folder / "gate").unlink()
    code, text = retry(run)
    assert code == 0, text
    assert run.output.read_text() == expected()
    assert set(ran(run)) == {"f00003", "f00013"}


def test_steps_behind_what_changes_run_anew(make: Make) -> None:
    run = broken(make, "")
    text = (run.folder / "job.yml").read_text()
    (run.folder / "job.yml").write_text(
        text
        + "  count:\n    type: command\n    command: wc -l < ${{inputs.rows}} > ${{outputs.total}}\n"
        + "    inputs: {rows: '${{parent.jobs.score.outputs.result}}'}\n"
        + "    outputs: {total: {type: uri_file, path: ./total.txt}}\n"
        + "  apart:\n    type: command\n    command: echo ran >> ${{outputs.log}}/log\n"
        + "    outputs: {log: {path: ./apart}}\n"
    )
    code, told = run.run()
    assert code == 0, told
    assert (run.folder / "total.txt").read_text().strip() == "18"
    (run.folder / "mended").touch()
    code, told = retry(run)
    assert code == 0, told
    assert (run.folder / "total.txt").read_text().strip() == "20"
    assert (run.folder / "apart" / "log").read_text() == "ran\n"


def test_a_cancelled_job_of_a_served_master_goes_on_where_it_was(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    gate = cluster.folder / "gate"
    variables = "jobs.score.environment_variables"
    cluster.create("job", "--set", f"{variables}.PAUSE=2", "--set", f"{variables}.HURRY={gate}")
    wait_until(lambda: cluster.done("job") > 2, "some is done")
    refused = cluster.run("job", "retry", "job")
    assert refused.returncode == 2 and "has not ended" in refused.stderr
    assert cluster.run("job", "cancel", "job", "--wait").returncode == 0
    done = cluster.done("job")
    gate.touch()
    told = cluster.run("job", "retry", "job")
    assert told.returncode == 0, told.stderr
    assert "job is running again" in told.stdout
    step = cluster.check_done("job")
    assert step["mini_batches"]["succeeded"] > done
    assert cluster.job("job")["generation"] == 2


def test_only_what_failed_is_told_of_an_ended_job(cluster: ServedCluster) -> None:
    cluster.start_agent("one")
    (cluster.folder / "code" / "entry.py").write_text("def run(mini_batch):\n    raise ValueError('never')\n")
    cluster.create("job", "--set", "jobs.score.mini_batch_error_threshold=0")
    cluster.run("job", "stream", "job")
    explained = " ".join(cluster.run("job", "explain", "job").stdout.split())
    check_words(explained, ["job is failed", "score: FAILED", "ValueError", "never", "windrow job retry job"])
    assert Path(cluster.folder / "code").is_dir()


def test_a_command_that_does_not_write_its_file_fails_and_is_repaired_by_a_retry(make: Make) -> None:
    run = make("def run(mini_batch):\n    return [open(path).read().strip() for path in mini_batch]\n")
    jobs = """
    prepare:
      type: command
      command: echo item > ${{outputs.made}}.typo
      outputs: {made: {type: uri_file, path: ./made.txt}}
    score:
      type: parallel
      inputs: {made: "${{parent.jobs.prepare.outputs.made}}"}
      outputs: {rows: {type: uri_file, path: ./rows.txt}}
      input_data: ${{inputs.made}}
      task: {type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{outputs.rows}}"}
    """
    (run.folder / "job.yml").write_text(f"type: pipeline\njobs:{textwrap.indent(textwrap.dedent(jobs), '  ')}")
    code, text = run.run()
    assert code == 1, text
    check_words(
        text, ["Failed: Step 'prepare' failed", "did not write its output 'made'", str(run.folder / "made.txt")]
    )
    job_file = run.folder / "job.yml"
    job_file.write_text(job_file.read_text().replace(".typo", ""))
    code, text = retry(run, "--file", "job.yml")
    assert code == 0, text
    assert (run.folder / "rows.txt").read_text() == "item\n"
