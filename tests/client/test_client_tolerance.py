"""Failures that nobody has allowed in words: what is said at the start of a run, and its exit code."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from windrow.cli.display.tolerance import tolerance_note

WINDROW = str(Path(sys.executable).with_name("windrow"))
JOB = """\
type: pipeline
jobs:
  score:
    type: parallel
    mini_batch_size: "1"
    inputs: {{data: {{type: uri_folder, path: ./data}}}}
    outputs: {{rows: {{type: uri_file, path: ./out.csv}}}}
    input_data: ${{{{inputs.data}}}}
    retry_settings: {{max_retries: 0}}
    {threshold}
    task: {{type: run_function, code: ./code, entry_script: entry.py, append_row_to: "${{{{outputs.rows}}}}"}}
"""
SCRIPT = """\
def run(mini_batch):
    if mini_batch[0].endswith("bad"):
        raise ValueError("bad")
    return mini_batch
"""


@pytest.mark.parametrize(
    ("threshold", "options", "code", "said"),
    [
        ("", [], 3, True),
        ("", ["--tolerate"], 0, False),
        ("mini_batch_error_threshold: 5", [], 0, False),
        ("mini_batch_error_threshold: 5", ["--strict"], 3, False),
        ("error_threshold: -1", [], 0, False),
    ],
)
def test_only_what_a_threshold_allows_ends_with_0(
    tmp_path: Path, threshold: str, options: list[str], code: int, said: bool
) -> None:
    for name, text in (("code/entry.py", SCRIPT), ("data/bad", ""), ("data/good", "")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "job.yml").write_text(JOB.format(threshold=threshold))
    command = [WINDROW, "run", "job.yml", "--no-progress", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("Step score sets no threshold" in done.stderr) == said


def test_values_that_do_not_fit_are_failures_only_if_strict(tmp_path: Path) -> None:
    """Whether workers meet them, or planning does, as it sorts the rows."""
    (tmp_path / "same.py").write_text("def run(rows):\n    return rows\n")
    (tmp_path / "t.csv").write_text("k,v\n" + "x,1\n" * 2_000 + "x,oops\ny,2.5\n")
    command = [WINDROW, "run", "same.py", "t.csv", "--no-progress", "-o"]
    for number, (options, code) in enumerate([([], 0), (["--strict"], 3), (["--strict", "--partition-keys", "k"], 3)]):
        line = [*command, f"o{number}.csv", *options]
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        assert ": 2 values did not fit: null, cut, beyond the header, or left out." in done.stdout


def test_of_hundreds_of_steps_a_few_are_named() -> None:
    steps = [{"name": f"s{number}"} for number in range(300)]
    assert tolerance_note({"steps": steps}, tolerate=False).startswith(
        "Steps s0, s1, s2, s3, s4 and 295 more set no threshold: "
    )


def test_the_start_says_what_happens_if_all_items_fail() -> None:
    """Only a step that writes rows fails then."""
    steps = [{"name": "s", "append_row_to": "rows"}, {"name": "t"}]
    assert tolerance_note({"steps": steps}, tolerate=False).endswith("0); if all fail, the job fails (1).")
    assert tolerance_note({"steps": steps[1:]}, tolerate=False).endswith("0).")
