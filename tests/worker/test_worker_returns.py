"""What `run()` may return, and what becomes of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from windrow_worker.rows.return_values import BadReturn
from windrow_worker.rows.writer import RowWriter
from worker_driver import Start


@pytest.mark.parametrize(
    ("expression", "rows", "results"),
    [
        ("[]", b"", 0),
        ("()", b"", 0),
        ("['a', 'b']", b"a\nb\n", 2),
        ("('a', 1, 2.5, None, True)", b"a\n1\n2.5\nNone\nTrue\n", 5),
        ("[{'k': 'v'}, [1]]", b"{'k': 'v'}\n[1]\n", 2),
        ("['']", b"\n", 1),
        ("['a\\nb', 'c\\r']", b"a\nb\nc\r\n", 2),
        ("['nul\\0here', 'é', '\\U0001F600']", "nul\0here\né\n\U0001f600\n".encode(), 3),
        ("['caf\\udce9.png', 1]", b"caf\xe9.png\n1\n", 2),
        ("[b'x']", b"b'x'\n", 1),
        ("range(3)", b"0\n1\n2\n", 3),
        ("__import__('collections').deque(['a'])", b"a\n", 1),
        ("__import__('numpy').array([1.5, 2])", b"1.5\n2.0\n", 2),
        ("__import__('numpy').array([[1, 2], [3, 4]])", b"[1 2]\n[3 4]\n", 2),
        ("__import__('numpy').array(['a', 'b'])", b"a\nb\n", 2),
        ("__import__('pandas').Series(['a', 2])", b"a\n2\n", 2),
        ("__import__('pandas').DataFrame({'a': [1, 2], 'b': ['x y', None]})", b'1 "x y"\n2 \n', 2),
        ("__import__('pandas').DataFrame({'a': []})", b"", 0),
        ("__import__('pandas').DataFrame()", b"", 0),
        ("[__import__('enum').Enum('C', {'R': 'red'}, type=str).R]", b"C.R\n", 1),
    ],
)
def test_rows_of_what_is_returned(tmp_path: Path, expression: str, rows: bytes, results: int) -> None:
    value = eval(expression)
    writer = RowWriter({"action": "append_row"}, str(tmp_path), 1 << 18)
    assert writer.count(value) == results
    written = writer.write(value, 1)
    assert (written.inline, written.length, written.count) == (rows, len(rows), rows.count(b"\n"))


@pytest.mark.parametrize("row_format", ["text", "csv"])
@pytest.mark.parametrize("as_frame", [False, True])
def test_arrays_have_all_their_elements_unless_the_script_says_otherwise(
    tmp_path: Path, row_format: str, as_frame: bool
) -> None:
    writer = RowWriter({"format": row_format}, str(tmp_path), 1 << 18)
    numbers = np.arange(2000)
    value = pd.DataFrame({"v": [numbers]}) if as_frame else [{"v": numbers}]
    whole = writer.write(value, 1).inline.decode()
    assert [int(word) for word in re.findall(r"\d+", whole)] == list(range(2000))
    with np.printoptions(threshold=10):
        assert "..." in writer.write(value, 2).inline.decode()


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("None", "NoneType"),
        ("'text'", "str"),
        ("b'bytes'", "bytes"),
        ("5", "int"),
        ("{'a': 1}", "dict"),
        ("{1, 2}", "set"),
        ("(x for x in [])", "generator"),
        ("__import__('numpy').array(5)", "ndarray"),
        ("__import__('collections').UserDict()", "UserDict"),
        ("__import__('pyarrow').table({'a': [1]})", "Table"),
    ],
)
@pytest.mark.parametrize("action", ["append_row", "summary_only"])
def test_a_wrong_type_is_refused_by_its_name(tmp_path: Path, expression: str, named: str, action: str) -> None:
    writer = RowWriter({"action": action}, str(tmp_path), 1 << 18)
    with pytest.raises(
        BadReturn, match="should return a list or a pandas DataFrame.*actual type of output is " + named
    ):
        writer.count(eval(expression))


@pytest.mark.parametrize(
    ("expression", "advice"),
    [
        ("__import__('pyarrow').table({'a': [1]})", "Call its to_pandas"),
        ("__import__('pyarrow').record_batch({'a': [1]})", "Call its to_pandas"),
        ("(x for x in [])", "Return a list of its elements"),
        ("map(str, [1])", "Return a list of its elements"),
        ("{1, 2}", "Return a list of its elements"),
        ("{'a': 1}.keys()", "Return a list of its elements"),
        ("None", "Return one element for each processed item"),
        ("'text'", r"output is str \('text'\)\. Return one element for each processed item"),
        (
            "'[Errno 2] No such file: ' + 'x' * 900",
            r"output is str \('\[Errno 2\] No such file: x{270,280}…'\)\. Return",
        ),
    ],
)
def test_a_wrong_type_comes_with_advice(tmp_path: Path, expression: str, advice: str) -> None:
    with pytest.raises(BadReturn, match=advice):
        RowWriter({}, str(tmp_path), 100).count(eval(expression))


class _Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (["a", _Unprintable()], "element 1 .* _Unprintable, raised RuntimeError: no text"),
        (["a"] * 2000 + ["\ud800"], "Element 2000 .* U\\+D800"),
        ([1] * 1500 + ["\ud800"], "Element 1500 .* U\\+D800"),
        ([10**5000], "element 0 .* ValueError"),
    ],
)
def test_an_element_that_cannot_be_written_is_named(tmp_path: Path, value: list[object], words: str) -> None:
    with pytest.raises(BadReturn, match=words):
        RowWriter({}, str(tmp_path), 100).write(value, 1)
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.integers(), st.floats(), st.none())
    ),
    st.integers(1, 3000),
    st.integers(0, 500),
)
def test_any_elements_are_their_texts_as_lines(
    tmp_path_factory: pytest.TempPathFactory, elements: list[object], times: int, most: int
) -> None:
    value = (elements * times)[:5000]
    expected = "".join(f"{element}\n" for element in value).encode()
    folder = tmp_path_factory.getbasetemp()
    written = RowWriter({}, str(folder), most).write(value, 3)
    if len(expected) > most:
        path = Path(os.fsdecode(written.path))
        assert path == folder / "rows-3"
        assert (path.read_bytes(), written.inline) == (expected, b"")
        path.unlink()
    else:
        assert (written.inline, written.path) == (expected, b"")
    assert (written.length, written.count) == (len(expected), expected.count(b"\n"))


def test_small_rows_travel_in_their_frame_and_large_ones_in_a_file(start: Start) -> None:
    worker = start("def run(b):\n    return ['x' * 9] * int(b[0][6:])\n", inline_rows_bytes_max=1000)
    worker.ready()
    small = worker.run(["100"], lease_id=1)
    assert (small.rows_path, len(small.rows)) == (None, 1000)
    large = worker.run(["101"], lease_id=2)
    assert large.rows_path == str(worker.scratch / "rows-2")
    assert large.rows == b"xxxxxxxxx\n" * 101
    assert worker.run(["1"], lease_id=3).rows == b"xxxxxxxxx\n"


def test_summary_only_counts_without_looking_at_the_elements(start: Start) -> None:
    worker = start(
        "class Bad:\n    def __str__(self):\n        raise RuntimeError\ndef run(b):\n    return [Bad()] * 3\n",
        rows={"action": "summary_only"},
    )
    worker.ready()
    frame = worker.run(["a"])
    assert (frame.result_count, frame.row_count, frame.rows) == (3, 0, b"")


def test_a_dataframe_is_written_as_the_settings_say_with_its_header_apart(start: Start) -> None:
    worker = start(
        "import pandas\ndef run(b):\n    return pandas.DataFrame({'name': b, 'half': [0.5] * len(b)})\n",
        rows={"dataframe_to_csv": {"sep": ",", "index": True}, "dataframe_header": True},
    )
    worker.ready()
    frame = worker.run(["a", "b,c"])
    assert frame.header == b",name,half\n"
    assert frame.rows == b'0,/data/a,0.5\n1,"/data/b,c",0.5\n'
    assert (frame.result_count, frame.row_count) == (2, 2)


def test_rows_of_a_dataframe_are_counted_and_not_their_lines(start: Start) -> None:
    worker = start("import pandas\ndef run(b):\n    return pandas.DataFrame({'text': ['two\\nlines', 'one']})\n")
    worker.ready()
    frame = worker.run(["a", "b"])
    assert (frame.rows, frame.row_count) == (b'"two\nlines"\none\n', 2)


def test_settings_that_pandas_does_not_know_fail_the_mini_batch_and_say_so(start: Start) -> None:
    worker = start(
        "import pandas\ndef run(b):\n    return pandas.DataFrame({'a': [1]})\n",
        rows={"dataframe_to_csv": {"sepp": ","}},
    )
    worker.ready()
    worker.send(1, ["a"])
    frame = worker.failed()
    assert frame.cause == "bad_return"
    assert "sepp" in frame.message
    assert 'was called with {"sepp": ","} of parallel_run_step.settings.json' in frame.message


def test_settings_that_say_where_to_write_fail_the_start(start: Start) -> None:
    worker = start("def run(b):\n    return b\n", rows={"dataframe_to_csv": {"path_or_buf": "x.csv"}})
    frame = worker.frame()
    assert frame.cause == "init_failed"
    assert "path_or_buf" in frame.message
    assert "Remove it" in frame.message


def test_names_that_are_no_utf8_come_out_as_the_same_bytes(start: Start, tmp_path: Path) -> None:
    names = [b"caf\xe9.png", "é\n.png".encode(), b"\xff\xfe"]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_bytes(name)
    worker = start(
        "def run(b):\n    for p in b:\n        print(p)\n"
        "    return [open(p, 'rb').read().decode('utf-8', 'surrogateescape') for p in b]\n",
        reader={"kind": "files", "root": str(tmp_path)},
    )
    worker.ready()
    worker.send(1, b"\0".join(names))
    assert worker.done().rows == b"".join(name + b"\n" for name in names)
    assert b"caf\xe9.png" in worker.stdout.read_bytes()


def test_a_scratch_folder_that_is_gone_is_made_again(start: Start) -> None:
    """By a script that cleans up more than its own: each further try would meet the same."""
    worker = start(
        "import os\ndef run(b):\n    os.rmdir(b[0][6:])\n    return ['x' * 5000]\n", inline_rows_bytes_max=1000
    )
    worker.ready()
    assert worker.run([str(worker.scratch)]).rows == b"x" * 5000 + b"\n"


def test_a_scratch_folder_that_cannot_be_is_the_nodes_fault(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    worker = start("def run(b):\n    return ['x' * 5000]\n", inline_rows_bytes_max=1000, scratch=folder)
    worker.ready()
    folder.rmdir()
    folder.write_text("a file in its place")
    worker.send(1, ["a"])
    frame = worker.failed()
    assert frame.cause == "node_fault"
    assert str(folder) in frame.message


def test_a_disk_that_fills_up_stays_so_until_the_agent_has_looked(start: Start) -> None:
    worker = start(
        "import resource\ndef init():\n    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000_000, 3_000_000))\n"
        "def run(b):\n    return ['x' * 999] * int(b[0][6:])\n"
    )
    worker.ready()
    worker.send(1, ["5000"])
    frame = worker.failed()
    assert frame.cause == "node_fault"
    assert "File too large" in frame.message
    (rows,) = worker.scratch.iterdir()
    assert (rows.name, rows.stat().st_size) == ("rows-1", 3_000_000)
    assert worker.run(["2000"], lease_id=2).row_count == 2000


def test_a_large_result_is_written_without_a_second_copy(start: Start) -> None:
    # 100 MB in one element and 50 MB in many: the process may take little more than the values themselves.
    worker = start(
        "def run(b):\n    return ['x' * 100_000_000] + ['é' * 1000] * 25_000\n",
    )
    before = worker.ready().peak_rss_kib
    frame = worker.run(["a"])
    assert len(frame.rows) == 100_000_001 + 2001 * 25_000
    assert frame.peak_rss_kib - before < 125_000_000 / 1024


def test_misfits_of_a_table_travel_beside_the_rows(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "prepared"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "score.py").write_text(
        "import sys, windrow_worker.loading as loading\n"
        "class Loader:\n"
        "    def load(self, recipe):\n"
        "        found = [('col', 2, 'f.csv:7: \\udcff'), ('far', 1, '/x' * 200 + ', line 7')]\n"
        "        return loading.Loaded([1, 2, 3], 3, found, {'store': '1'})\n"
        "def init():\n"
        "    sys._getframe(2).f_locals['self']._loader = Loader()\n"
        "def run(b, c):\n    return [c.partition_key_value]\n"
    )
    worker = start(folder=folder)
    worker.ready()
    frame = worker.run(["a"])
    assert (frame.item_count, frame.rows) == (3, b"{'store': '1'}\n")
    far = "…" + ("/x" * 200 + ", line 7")[-239:]
    assert frame.side == {"misfits": [["col", 2, "f.csv:7: \\udcff"], ["far", 1, far]]}
