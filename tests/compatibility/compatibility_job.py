"""A folder with a job as somebody brings it from Azure ML, and the real command run on it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

from job_schema import check_schema_takes

WINDROW = str(Path(sys.executable).with_name("windrow"))
DEADLINE_S = 180


class CompatibilityJob:
    """Writes files, runs `windrow run`, and shows what became of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / ".windrow"

    def write(self, name: str, text: str) -> Path:
        """A text file, without the indentation that all its lines share."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        return path

    def write_job(self, input_type: str, path: str, *, settings: str = "", rows: str = "./rows.txt") -> None:
        """The plainest job file: one step that divides `path` and runs `code/score.py`."""
        self.write(
            "job.yml",
            f"""
            type: pipeline
            jobs:
              score:
                type: parallel
                inputs:
                  data: {{type: {input_type}, path: {path}}}
                outputs:
                  rows: {{type: uri_file, path: {rows}}}
                input_data: ${{{{inputs.data}}}}
                task:
                  type: run_function
                  code: ./code
                  entry_script: score.py
                  append_row_to: ${{{{outputs.rows}}}}
            """,
        )
        with (self.folder / "job.yml").open("a") as file:
            file.write(textwrap.indent(textwrap.dedent(settings).strip("\n"), "    ") + "\n")

    def run(self, *options: str, file: str = "job.yml", **environment: str) -> tuple[int, str]:
        """The command to its end: (exit code, everything it printed)."""
        # With WINDROW_SANDBOX=strict, the whole suite shows that no script needs more than it is given.
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == "WINDROW_SANDBOX"
            or (name not in ("VIRTUAL_ENV", "CONDA_PREFIX") and not name.startswith(("WINDROW_", "PYTHON")))
        }
        # Azure ML does not distinguish failures that a threshold allows from those of a job without one.
        tolerant = () if "--strict" in options else ("--tolerate",)
        result = subprocess.run(
            [WINDROW, "run", file, "--no-progress", *tolerant, *options],
            cwd=self.folder,
            # What the samples' lists of packages would bring is here; building them has tests of its own.
            env={**kept, "WINDROW_ENVIRONMENTS": "own", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        if result.returncode == 0:
            check_schema_takes(self.folder / file, result.stdout)
        return result.returncode, result.stdout

    def completed(self, *options: str, **more: str) -> str:
        """Runs a job that must complete; returns what was printed."""
        code, text = self.run(*options, **more)
        assert code == 0, text
        return text

    def counters(self) -> dict[str, int]:
        """The stored counters of the only step of the latest job: items and mini-batches by outcome."""
        with contextlib.closing(sqlite3.connect(f"file:{self.state}/windrow.db?mode=ro", uri=True)) as connection:
            *_, (counters,) = connection.execute("SELECT counters FROM step ORDER BY step_id")
        return dict(json.loads(counters))


def output_of(text: str) -> Path:
    """The file that the last line of a run names."""
    (path,) = re.findall(r"\bOutput: (.+)$", text, re.MULTILINE)
    return Path(path)
