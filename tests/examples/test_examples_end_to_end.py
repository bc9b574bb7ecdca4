"""Both examples, as their READMEs tell: train, run with the real command, and compare with predictions made directly.

What is compared is made by the example's own entry script, called in this process on the whole input at once.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from documented_commands import README, block

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        # What the examples' lists of packages would bring is here already.
        env={**os.environ, "WINDROW_ENVIRONMENTS": "own"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, f"{command} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}"
    return result


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of both examples, trained."""
    copy = tmp_path_factory.mktemp("examples")
    for name in ("iris", "digits"):
        shutil.copytree(
            ROOT / "examples" / name,
            copy / name,
            ignore=shutil.ignore_patterns("output", "images", "*-model", "iris.csv", "__pycache__"),
        )
        run(sys.executable, copy / name / "train.py", cwd=copy)
    return copy


class DirectEntryScript:
    """Stands in for the runtime's EntryScript when a script is called directly."""

    agent_name = "direct"
    logger = SimpleNamespace(info=lambda *_: None)


def entry_script(path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of an entry script whose `init()` has been called, in this process."""
    module = SimpleNamespace(EntryScript=DirectEntryScript)
    monkeypatch.setitem(sys.modules, "azureml_user", SimpleNamespace(parallel_run=module))
    monkeypatch.setitem(sys.modules, "azureml_user.parallel_run", module)
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    names: dict[str, Any] = {"__name__": "entry_script", "__file__": str(path)}
    exec(compile(path.read_text(), path, "exec"), names)
    names["init"]()
    return names


def expected_iris(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    import pandas as pd

    script = folder / "script/iris_prediction.py"
    names = entry_script(script, ["--model", str(folder / "iris-model")], monkeypatch)
    frame = names["run"](pd.read_csv(folder / "iris-mltable/iris.csv"))
    return bytes(frame.to_csv(index=False, lineterminator="\n").encode())


def expected_digits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    script = folder / "script/digit_identification.py"
    names = entry_script(script, ["--model", str(folder / "digits-model")], monkeypatch)
    images = sorted(str(path) for path in (folder / "images").rglob("*.pgm"))
    rows = names["run"](images, SimpleNamespace(minibatch_index="0"))
    return "".join(f"{row}\n" for row in rows).encode()


CASES = {
    "iris": (expected_iris, "output/predictions.csv", 1 + 150, 4),
    "digits": (expected_digits, "output/digits.csv", 1797, 36),
}


@pytest.mark.parametrize("name", CASES)
def test_output_is_what_direct_calls_give(name: str, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected: Callable[[Path, pytest.MonkeyPatch], bytes]
    expected, output, lines, mini_batches = CASES[name]
    run(BIN / "windrow", "run", trained / name / "job.yml", "--state", trained / f"state-{name}", cwd=trained)

    written = (trained / name / output).read_bytes()
    assert written.count(b"\n") == lines
    assert written == expected(trained / name, monkeypatch)

    listed = run(BIN / "windrow", "job", "list", "--state", trained / f"state-{name}", "--format", "json", cwd=trained)
    job_id = json.loads(listed.stdout)[0]["job_id"]
    shown = run(
        BIN / "windrow", "job", "show", job_id, "--state", trained / f"state-{name}", "--format", "json", cwd=trained
    )
    step = json.loads(shown.stdout)["steps"][0]
    assert int(step["mini_batches"]["succeeded"]) == int(step["mini_batches"]["total"]) == mini_batches
    items = lines - (name == "iris")
    assert int(step["items"]["ok"]) == int(step["items"]["total"]) == items


def test_the_same_command_again_is_a_new_run_with_the_same_output(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "iris"
    shutil.copytree(trained / "iris", folder, ignore=shutil.ignore_patterns("output"))
    contents = []
    for _ in range(2):
        run(BIN / "windrow", "run", folder / "job.yml", cwd=tmp_path)
        contents.append((folder / "output/predictions.csv").read_bytes())
    assert contents[0] == contents[1]
    listed = run(BIN / "windrow", "job", "list", "--state", ".windrow", "--format", "json", cwd=tmp_path)
    assert len(json.loads(listed.stdout)) == 2


def test_a_damaged_image_alone_fails_and_is_named(trained: Path) -> None:
    """What examples/digits/README.md says of a damaged image."""
    folder = trained / "damaged"
    shutil.copytree(trained / "digits", folder, ignore=shutil.ignore_patterns("output"))
    (folder / "images/03/0307.pgm").write_bytes(b"no image")
    run(BIN / "windrow", "run", folder / "job.yml", "--state", trained / "state-damaged", cwd=trained)
    rows = (folder / "output/digits.csv").read_text().splitlines()
    assert len(rows) == 1797 - 1
    assert not [row for row in rows if row.startswith("0307.pgm")]
    failed = (folder / "output/failed_items.csv").read_text().splitlines()
    assert len(failed) == 1 + 1
    assert "exception" in failed[1]
    assert "0307.pgm" in failed[1]


def test_readme_names_commands_that_exist(trained: Path, tmp_path: Path) -> None:
    """Every `windrow` and `python` line of the examples' READMEs runs, from the folder above `examples`."""
    for name in ("iris", "digits"):
        shutil.copytree(trained / name, tmp_path / "examples" / name, ignore=shutil.ignore_patterns("output"))
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    for name in ("iris", "digits"):
        text = (ROOT / "examples" / name / "README.md").read_text()
        commands = [line.strip() for line in text.splitlines() if line.startswith("    ")]
        assert len(commands) == 3
        for command in commands:
            subprocess.run(
                command.partition("#")[0], shell=True, check=True, cwd=tmp_path, env=environment,
                stdin=subprocess.DEVNULL, timeout=240,
            )  # fmt: skip


def test_script_and_job_file_of_the_readme_run(tmp_path: Path) -> None:
    """The README's own script and job file, as they stand there."""
    text = (ROOT / "README.md").read_text()
    (tmp_path / "code").mkdir()
    (tmp_path / "code/sizes.py").write_text(text.split("```python\n")[1].split("```")[0])
    (tmp_path / "job.yml").write_text(text.split("```yaml\n")[1].split("```")[0])
    (tmp_path / "texts").mkdir()
    for number in range(25):
        (tmp_path / "texts" / f"{number:02d}.txt").write_text("é\n" * number)
    run(BIN / "windrow", "run", "job.yml", cwd=tmp_path)
    expected = "".join(f"{number:02d}.txt,{number},{2 * number}\n" for number in range(25))
    assert (tmp_path / "sizes.csv").read_text() == "file,lines,characters\n" + expected


def test_the_one_line_of_the_readme_saves_its_job_file(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (tmp_path / "code").mkdir()
    (tmp_path / "code/sizes.py").write_text(text.split("```python\n")[1].split("```")[0])
    for line in block(README, "mkdir -p code texts").lines:
        subprocess.run(["bash", "-c", line], cwd=tmp_path, check=True)
    (line,) = block(README, "windrow run code/sizes.py texts/ -o sizes.csv").lines
    told = run(BIN / "windrow", *line.split()[1:], "--slots", "2", cwd=tmp_path)
    assert "Completed: 100 items in 10 mini-batches, 100 rows" in told.stdout
    for shown in ("in each mini-batch (chosen; --mini-batch-size sets it)", "Step sizes sets no threshold: any number"):
        assert shown in text
        assert shown in told.stdout + told.stderr
    for of_table in block(README, "windrow init orders.csv --job orders.yml").lines:
        run(BIN / "windrow", *of_table.split()[1:], cwd=tmp_path)
    assert len((tmp_path / "totals.csv").read_text().splitlines()) == 1001
    run(BIN / "windrow", *line.split()[1:], "--slots", "2", "--save", "job.yml", cwd=tmp_path)
    added = ("mini_batch_error_threshold", "retry_settings")
    job = text.split("```yaml\n")[1].split("```")[0].splitlines()
    saved = (tmp_path / "job.yml").read_text().replace("  # chosen by windrow", "").splitlines()
    assert saved == [one for one in job if not one.strip().startswith(added)]


def test_job_file_of_the_reference_page_is_valid(tmp_path: Path) -> None:
    text = (ROOT / "docs/job-file.md").read_text()
    (tmp_path / "code").mkdir()
    (tmp_path / "code/score.py").write_text("def run(mini_batch):\n    return mini_batch\n")
    (tmp_path / "job.yml").write_text(text.split("```yaml\n")[1].split("```")[0])
    (tmp_path / "images").mkdir()
    (tmp_path / "images/one").write_text("")
    run(BIN / "windrow", "run", "job.yml", cwd=tmp_path)
    assert (tmp_path / "scores.csv").read_text() == f"{tmp_path}/images/one\n"


def test_job_with_a_loop_and_a_condition_of_the_page_runs(tmp_path: Path) -> None:
    text = (ROOT / "docs/job-file.md").read_text().partition("### Conditions and loops")[2]
    (tmp_path / "job.yml").write_text(text.split("```yaml\n")[1].split("```")[0])
    told = run(BIN / "windrow", "run", "job.yml", cwd=tmp_path)
    # 50, 25, 12, 6
    assert "Skipped: odd. The condition of 'branch' is true" in told.stdout
    skipped = "Skipped: halve_4, halve_5, halve_6 and 4 more steps. Loop 'until_small' has ended after 3 iterations"
    assert skipped in told.stdout
    (word,) = [line.removeprefix("Output: ") for line in told.stdout.splitlines() if line.startswith("Output: ")]
    assert (Path(word) / "word.txt").read_text() == "even\n"


def test_readme_shows_what_make_demo_prints(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "digits", tmp_path / "digits", ignore=shutil.ignore_patterns("output"))
    told = run(BIN / "windrow", "run", "digits/job.yml", cwd=tmp_path).stdout
    text = (ROOT / "README.md").read_text()
    assert "".join((tmp_path / "digits/output/digits.csv").read_text().splitlines(keepends=True)[:5]) in text
    completed = next(line for line in told.splitlines() if line.startswith("Completed"))
    assert completed.partition(" KB), ")[0] in text
