"""What reading a job file costs before the first `run()`: which modules it brings along."""

from __future__ import annotations

import subprocess
import sys

import pytest

COSTLY = ("pydantic", "typer", "rich", "structlog", "grpc", "google", "dataclasses", "pathlib", "hashlib", "pathspec",
          "pandas", "numpy", "difflib", "shlex", "tarfile")  # fmt: skip


def modules_after(statement: str) -> set[str]:
    program = f"import sys; before = set(sys.modules)\n{statement}\nprint(*(set(sys.modules) - before))"
    # -I -S: nothing that site brings along; the path is given instead.
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(run.stdout.split())


@pytest.mark.parametrize("statement", ["import windrow.spec", "import windrow.spec.load"])
def test_reading_a_job_file_imports_nothing_costly(statement: str) -> None:
    assert not {name.partition(".")[0] for name in modules_after(statement)} & set(COSTLY)


def test_the_effective_job_needs_no_yaml() -> None:
    assert "yaml" not in modules_after("import windrow.spec.effective.job, windrow.spec.effective.document")


def test_every_public_name_is_there() -> None:
    modules_after("import windrow.spec; [getattr(windrow.spec, name) for name in windrow.spec.__all__]")
