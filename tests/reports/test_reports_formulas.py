"""No cell of a table that people open is run as a formula by their spreadsheet, and programs get the text back."""

from __future__ import annotations

import csv
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opened_store import open_store
from test_reports_streaming import STEP, attempt
from windrow.common.spreadsheet_cells import FORMULA_STARTS, as_text, as_texts, original
from windrow_agent.steps.resource_monitor import _append
from windrow_agent.workers.capture import CapturedFile
from windrow_master.core.records import Dirty, ItemOutcomeRow, PlannedRows
from windrow_master.core.states import AttemptState, Cause
from windrow_master.reports.failed_items import Describer, write_failed_items
from windrow_master.reports.mini_batch_tables import write_processed

CELLS = st.text(alphabet=st.sampled_from([*FORMULA_STARTS, "'", "a", "1", " ", ",", '"']), max_size=6)


@given(CELLS)
def test_no_text_begins_like_a_formula_and_each_comes_back(cell: str) -> None:
    written = as_text(cell)
    assert written[:1] not in {*FORMULA_STARTS}
    assert original(written) == cell


@given(CELLS, CELLS)
def test_texts_that_differ_are_written_differently(one: str, other: str) -> None:
    assert (as_text(one) == as_text(other)) == (one == other)


def test_what_begins_otherwise_and_numbers_stay_as_they_are() -> None:
    row = ["a=1", "it's", "'quoted'", "", -1, -0.5, None]
    assert as_texts(row) == row


def test_messages_in_the_table_of_attempts_are_written_alike(tmp_path: Path) -> None:
    """Which SQLite writes."""
    messages = ["=cmd|'/c calc'!A1", "'=x", "''+1", "-1", "@SUM(A1)", "＝1", "plain", "it's", "'", "\tx", "\rx", "\nx"]
    store = open_store(tmp_path / "state")
    base = store.lease_prefix << 32
    rows = [
        attempt(base + number, number, AttemptState.FAILED, Cause.EXCEPTION, message=message, results=0)
        for number, message in enumerate(messages, 1)
    ]
    store.commit(Dirty(attempts=[row._replace(node_id="=node") for row in rows]), [], [])
    write_processed(store.reader(), STEP, {}, tmp_path / "processed.csv")
    store.close()
    with (tmp_path / "processed.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["Error Message"] for row in found] == list(map(as_text, messages))
    assert {row["Node"] for row in found} == {"'=node"}


def test_items_and_messages_in_the_list_of_failures_are_text(tmp_path: Path) -> None:
    """A script, and a node, may say what they like."""
    recipes = tmp_path / "recipes"
    recipes.write_bytes(b"recipe")
    records = struct.pack("<QIQII", 0, 1, 0, 6, zlib.crc32(b"recipe"))
    failed = ItemOutcomeRow(STEP, 0, 0, 1, Cause.EXCEPTION, "=HYPERLINK(1)")
    store = open_store(tmp_path / "state")
    store.commit(Dirty(planned=[PlannedRows(STEP, 0, 1, records)], item_outcomes=[failed]), [], [])
    listed = tmp_path / "failed_items.csv"
    described = Describer(lambda recipe: ["=item"], lambda recipe: "+partition")
    assert write_failed_items(store.reader(), STEP, recipes, described, listed) == 1
    store.close()
    with listed.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["item"], row["message"], row["partition"]) == ("'=item, record 1", "'=HYPERLINK(1)", "'+partition")
    assert (row["cause"], row["tries"], row["mini_batch"]) == ("exception", "0", "0")


@pytest.mark.parametrize(("name", "written"), [("=1+1", "'=1+1"), ("python3", "python3")])
def test_names_that_processes_give_themselves_are_text(tmp_path: Path, name: str, written: str) -> None:
    file = CapturedFile(tmp_path / "processes.csv")
    _append(file, ("Pid", "Name"), [(1, name)])
    assert (tmp_path / "processes.csv").read_bytes() == f"Pid,Name\r\n1,{written}\r\n".encode()
