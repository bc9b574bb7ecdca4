"""Values of outputs: what is read as one, and what is refused, with what to do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from windrow_master.output_places import OutputPlaces
from windrow_master.shell.output_values import ValueUnreadable, read_values
from windrow_master.step_paths import StepPaths


def value(place: Path, kind: str) -> str:
    return read_values(
        "check", StepPaths({}, {"go": str(place)}, None), {"go": kind}, OutputPlaces(place.parent, [], None)
    )["go"]


@pytest.mark.parametrize(
    ("content", "kind", "wanted"),
    [
        *((text, "boolean", "True") for text in ("true", "True", "TRUE\n", " 1 \n", "\ufefftrue")),
        *((text, "boolean", "False") for text in ("false", "False", "0", "0.0\r\n")),
        ("007\n", "integer", "7"),
        ("-3", "integer", "-3"),
        (" 1.50\n", "number", "1.50"),
        ("two words \n", "string", "two words "),
        ("", "string", ""),
        ("ä", "string", "ä"),
    ],
)
def test_a_value_is_read_as_scripts_write_it(tmp_path: Path, content: str, kind: str, wanted: str) -> None:
    file = tmp_path / "go"
    file.write_bytes(content.encode())
    assert value(file, kind) == wanted


def test_in_a_folder_it_is_the_file_of_azure_ml(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("True")
    assert value(tmp_path, "boolean") == "True"


@pytest.mark.parametrize(
    ("content", "kind", "told"),
    [
        (b"maybe", "boolean", "holds 'maybe', which is not true or false"),
        (b"", "boolean", "holds '', which is not true or false"),
        (b"2", "boolean", "holds '2'"),
        (b"1.5", "integer", "which is not a whole number"),
        (b"many", "number", "which is not a number"),
        (b"\xff\xfe", "string", "which is not text in UTF-8"),
        (b"a\0b", "string", "which is not text in UTF-8"),
        (b"1" * 5000, "integer", "it has 5,000 bytes, more than the 4,096 of a value"),
    ],
)
def test_what_is_no_value_is_said(tmp_path: Path, content: bytes, kind: str, told: str) -> None:
    file = tmp_path / "go"
    file.write_bytes(content)
    with pytest.raises(ValueUnreadable) as caught:
        value(file, kind)
    assert told in str(caught.value) and "Output 'go' of step 'check'" in str(caught.value)
    assert str(caught.value).endswith("into that file.")


def test_nothing_waits_for_what_is_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueUnreadable, match="pipe is not a plain file"):
        value(tmp_path / "pipe", "boolean")
    with pytest.raises(ValueUnreadable, match="was not written: there is no file"):
        value(tmp_path / "missing", "boolean")


def test_a_link_to_a_secret_is_not_read_and_the_secret_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "join-token").write_text("t0ken\n")
    (tmp_path / "outputs").mkdir()
    (tmp_path / "outputs" / "file").symlink_to(tmp_path / "join-token")
    (tmp_path / "outputs" / "folder").mkdir()
    (tmp_path / "outputs" / "folder" / "output").symlink_to(tmp_path / "join-token")
    for name in ("file", "folder"):
        for kind in ("string", "boolean"):
            with pytest.raises(ValueUnreadable, match="is a link, and Windrow follows no link") as told:
                value(tmp_path / "outputs" / name, kind)
            assert "t0ken" not in str(told.value)
