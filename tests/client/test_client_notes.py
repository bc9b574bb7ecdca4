"""Small documents with a checksum: what was changed is told, whatever byte it was."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from file_damage import flip_middle
from windrow.common.notes import NoteDamaged, read_note, render, write_note
from windrow.embedded import remembered_options, unreported_run
from windrow.embedded.datastores import gather, known
from windrow.embedded.state_folder import claim, prepare, read_endpoint
from windrow.errors import StateFolderError

VALUES = [{}, {"a": 1}, {"text": 'ü "crc32": 7}', "list": [1, {"b": None}], "name": "\udcff"}]


@pytest.mark.parametrize("value", VALUES)
def test_a_note_is_read_as_it_was_written(tmp_path: Path, value: dict[str, object]) -> None:
    write_note(tmp_path / "note", value, durable=True)
    assert read_note(tmp_path / "note") == value
    assert json.loads((tmp_path / "note").read_text()).keys() == {*value, "crc32"}
    assert [path.name for path in tmp_path.iterdir()] == ["note"]
    assert read_note(tmp_path / "absent") is None


@pytest.mark.parametrize("value", VALUES)
def test_every_flipped_bit_and_every_cut_of_a_note_is_told(tmp_path: Path, value: dict[str, object]) -> None:
    whole = render(value)
    flipped = [
        whole[:at] + bytes([byte ^ 1 << bit]) + whole[at + 1 :] for at, byte in enumerate(whole) for bit in range(8)
    ]
    for damaged in (
        *flipped,
        *(whole[:length] for length in range(len(whole))),
        whole + b"\n",
        whole + b"{}",
        b"x" + whole,
    ):
        (tmp_path / "note").write_bytes(damaged)
        with pytest.raises(NoteDamaged, match="note is damaged"):
            read_note(tmp_path / "note")


def test_datastores_that_are_damaged_are_not_left_out_in_silence(tmp_path: Path) -> None:
    gather(str(tmp_path), {"lake": "s3://lake"})
    assert known(str(tmp_path), {}) == {"lake": "s3://lake"}
    flip_middle(tmp_path / "datastores.json")
    for look in (gather, known):
        with pytest.raises(StateFolderError, match=r"datastores\.json is damaged.*--datastore"):
            look(str(tmp_path), {})
    (tmp_path / "datastores.json").unlink()
    assert gather(str(tmp_path), {"lake": "s3://lake"}) == {"lake": "s3://lake"}


def test_a_retry_does_not_guess_how_a_run_was_told_to_run(tmp_path: Path) -> None:
    remembered_options.remember(str(tmp_path), "job", "/usr/bin/python3", "build", ["lake=/lake"])
    assert remembered_options.recall(str(tmp_path), "job").python == "/usr/bin/python3"
    flip_middle(tmp_path / "jobs/job/run.json")
    with pytest.raises(StateFolderError, match=r"run\.json is damaged.*--since job"):
        remembered_options.recall(str(tmp_path), "job")


def test_a_run_whose_note_is_damaged_counts_as_told(tmp_path: Path) -> None:
    unreported_run.remember(str(tmp_path), "job")
    assert unreported_run.remembered(str(tmp_path)) == "job"
    flip_middle(tmp_path / "untold")
    assert unreported_run.remembered(str(tmp_path)) == ""
    unreported_run.forget(str(tmp_path), "job")


def test_nobody_connects_to_where_a_damaged_note_leads(tmp_path: Path) -> None:
    folder = prepare(str(tmp_path / "state"))
    owner = claim(folder)
    assert owner is not None
    owner.publish({"address": "unix:/nowhere", "pid": os.getpid()})
    flip_middle(Path(folder, "embedded.json"))
    with pytest.raises(StateFolderError, match=r"embedded\.json is damaged"):
        read_endpoint(folder)
    owner.release()


def test_notes_that_are_written_at_the_same_time_are_whole(tmp_path: Path) -> None:
    """Two runs of one process note in one state folder whom they follow."""
    note = tmp_path / "note"

    def write(writer: int) -> None:
        for number in range(300):
            write_note(note, {"by": writer, "number": number, "more": "x" * 5000 * writer})

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write, writer) for writer in range(4)]:
            done.result()
    found = read_note(note)
    assert found is not None and found["number"] == 299
    assert list(tmp_path.iterdir()) == [note]
