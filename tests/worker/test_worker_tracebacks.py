"""What is told of an exception: the script's frames, and none of the host's before them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from windrow_worker import failures
from windrow_worker.failures import traceback_of
from windrow_worker.tables.files import open_listed


def test_no_frame_of_the_host_stands_in_what_led_to_its_own_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="was there when the input was listed") as raised:
        open_listed(str(tmp_path / "gone.csv"))
    error = raised.value
    assert error.__cause__ is not None
    before = (error.__traceback__, error.__cause__.__traceback__)
    # The first frame of what is raised is this test's, as that of a script would be.
    assert "open_listed" not in traceback_of(error.__cause__)
    assert "windrow_worker" not in traceback_of(error).partition("direct cause")[0]
    assert "FileNotFoundError" in traceback_of(error) and "was there when" in traceback_of(error)
    assert traceback_of(error, whole=True).count("windrow_worker") > traceback_of(error).count("windrow_worker")
    # A debugger that is entered afterwards finds all of them.
    assert (error.__traceback__, error.__cause__.__traceback__) == before


def test_errors_that_led_to_each_other_are_told_once() -> None:
    first, second = ValueError("the first"), ValueError("the second")
    first.__cause__, second.__cause__ = second, first
    assert traceback_of(first).count("ValueError: the second") == 1


def test_files_of_the_code_folder_are_named_by_their_path_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_below", "")
    for folder in ("code", "code2"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "score.py").write_text("def run():\n    1 / 0\n")
    failures.name_files_below(str(tmp_path / "code"))
    told = []
    for folder in ("code", "code2"):
        path = tmp_path / folder / "score.py"
        space: dict[str, Any] = {}
        exec(compile(path.read_text(), str(path), "exec"), space)
        try:
            space["run"]()
        except ZeroDivisionError as error:
            told.append(failures.traceback_of(error))
    assert '  File "score.py", line 2, in run\n    1 / 0\n' in told[0]
    assert f'  File "{tmp_path}/code2/score.py", line 2, in run\n' in told[1]
