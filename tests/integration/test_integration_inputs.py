"""Inputs that are odd: names of any bytes, nothing at all, very many, very large results."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_run import EmbeddedRun, check_counts, check_words

Make = Callable[..., EmbeddedRun]

ECHO = "def run(mini_batch):\n    return mini_batch\n"

NAMES = [
    b"with space",
    b" lead and trail ",
    b"new\nline",
    b"carriage\rreturn",
    b"tab\there",
    b"not \xff\xfe utf-8",
    "öffentlich \U0001f33e".encode(),
    b"-dash",
    b"back\\slash",
    b"quote'\"",
    b"${{inputs.data}}",
    b"*?[a]",
    b"n" * 255,
    b"sub \xff\ndir/inner",
]


def test_names_of_any_bytes_come_out_as_they_are(make: Make) -> None:
    run = make(ECHO, files=0, size=3)
    data = run.folder / "data"
    for name in NAMES:
        path = data / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    code, text = run.run()
    assert code == 0, text
    assert check_counts(run)["items_ok"] == len(NAMES)
    # Raw bytes decide the order, folder by folder: here no folder's name is the beginning of a file's.
    expected = b"".join(os.fsencode(data) + b"/" + name + b"\n" for name in sorted(NAMES))
    assert run.output.read_bytes() == expected


def test_names_of_any_bytes_are_listed_when_they_fail(make: Make) -> None:
    run = make(
        "def run(mini_batch):\n"
        "    if mini_batch[0].endswith('name'):\n"
        "        raise ValueError('not ' + mini_batch[0])\n"
        "    return mini_batch\n",
        files=1,
    )
    (run.folder / "data" / os.fsdecode(b"bad \xff name")).write_text("")
    code, text = run.run("--strict")
    assert code == 3, text
    check_words(text, ["failed_items.csv", "ValueError", "name"])
    assert b"name" in (run.folder / "failed_items.csv").read_bytes()


def test_the_state_of_a_run_is_not_among_its_data(make: Make) -> None:
    """Data beside the job file: the state folder lies in it, too, and is neither listed nor copied."""
    run = make(
        "import os, sys\n\ndef run(mini_batch):\n"
        "    copied = [name for _, _, names in os.walk(sys.argv[-1]) for name in names]\n"
        "    return [os.path.relpath(path, sys.argv[-2]) + ' ' + str('master.log' in copied) for path in mini_batch]\n",
        files=2,
    )
    text = (run.folder / "job.yml").read_text()
    for old, new in (
        ("path: ./data", "path: ."),
        ('inputs: {data: "${{parent.inputs.data}}"}', 'inputs: {data: "${{parent.inputs.data}}", side: SIDE}'),
        ("SIDE", "{type: uri_folder, path: ., mode: download}"),
        ("path: ./out.txt", f"path: {run.folder.parent / 'out.txt'}"),
        ("append_row_to", "program_arguments: '${{inputs.data}} ${{inputs.side}}'\n      append_row_to"),
    ):
        assert old in text
        text = text.replace(old, new)
    (run.folder / "job.yml").write_text(text)
    for _ in range(2):
        code, said = run.run("--restart")
        assert code == 0, said
        assert f"{run.state} was left out: it is a state folder of Windrow" in said
        rows = (run.folder.parent / "out.txt").read_text().splitlines()
        assert rows == ["code/entry.py False", "data/f00000 False", "data/f00001 False", "job.yml False"]


@pytest.mark.parametrize("threshold", [-1, 0])
def test_mini_batches_of_tables_that_could_not_be_loaded_are_told_as_such(make: Make, threshold: int) -> None:
    """Nobody knows how many items they have."""
    settings = f"mini_batch_error_threshold: {threshold}\n    max_concurrency_per_instance: 1"
    run = make(
        "def run(table):\n    with open(table['last'][0], 'a') as file:\n        file.write('5')\n    return [1]\n",
        files=0,
        settings=settings,
    )
    last = run.folder / "data" / "z.csv"
    (run.folder / "data" / "a.csv").write_text(f"last\n{last}\n")
    last.write_text("last\nx\n")
    text = (run.folder / "job.yml").read_text()
    (run.folder / "job.yml").write_text(text.replace("type: uri_folder", "type: mltable"))
    code, said = run.run()
    assert "1 mini-batch failed with input that had changed" in said
    if threshold == 0:
        assert code == 1 and "\n1 failed mini-batch of step score: windrow job logs" in said, said
    else:
        assert code == 0, said
        assert "CompletedWithFailures: 1 of 2 mini-batches failed before their items were counted; listed in" in said


def test_forty_thousand_files_in_one_mini_batch(make: Make) -> None:
    run = make("def run(mini_batch):\n    return [len(mini_batch)]\n", files=40_000, size=50_000)
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text() == "40000\n"
    counters = check_counts(run)
    assert (counters["planned"], counters["items_total"], counters["items_ok"]) == (1, 40_000, 1)


def test_an_empty_folder_is_told(make: Make) -> None:
    run = make(ECHO, files=0)
    code, text = run.run()
    assert code == 1, text
    check_words(text, ["Failed: ", f"{run.folder / 'data'} contains no files", "Check the path"])
    assert not run.output.exists()


def test_an_empty_file_is_an_item(make: Make) -> None:
    run = make("def run(mini_batch):\n    return [len(open(path).read()) for path in mini_batch]\n", files=1)
    (run.folder / "data" / "f00000").write_text("")
    code, text = run.run()
    assert code == 0, text
    assert run.output.read_text() == "0\n"


TABLE = "def run(table):\n    return table\n"


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (b"", 1, ["has no records", "empty"]),
        (b"a,b\n", 1, ["has no records", "only headers"]),
        (None, 1, ["contains no files", "check the path"]),
        (b"a,b\n1,2\n\xff\xfe\xfd,4\n", 1, ["data.csv", "utf"]),
    ],
    ids=["empty", "only_a_header", "a_folder", "no_utf8"],
)
def test_a_table_without_usable_content_is_told(make: Make, content: bytes | None, code: int, words: list[str]) -> None:
    run = make(TABLE, files=0)
    data = run.folder / "data"
    if content is None:
        (data / "data.csv").mkdir()
    else:
        (data / "data.csv").write_bytes(content)
    (data / "MLTable").write_text(
        "paths:\n  - file: ./data.csv\ntransformations:\n  - read_delimited: {delimiter: ',', encoding: utf8}\n"
    )
    job = run.folder / "job.yml"
    text = job.read_text().replace("type: uri_folder", "type: mltable, mode: direct").replace('"1"', '"1kb"')
    job.write_text(text)
    got, said = run.run()
    assert got == code, said
    lowered = said.lower()
    missing = [word for word in words if word not in lowered]
    assert not missing, said
    assert "windrow_master/" not in said


def test_a_dangling_link_is_an_item_whose_opening_fails(make: Make) -> None:
    run = make("def run(mini_batch):\n    return [open(path).read() for path in mini_batch]\n", files=3)
    (run.folder / "data" / "f00001").unlink()
    (run.folder / "data" / "f00001").symlink_to("nowhere")
    code, text = run.run("--strict", "--set", "jobs.score.retry_settings.max_retries=0")
    counters = check_counts(run)
    if counters["items_total"] == 3:
        assert code == 3, text
        check_words(text, ["f00001", "FileNotFoundError"])
    assert run.output.read_text() == "0\n2\n"


def test_a_large_result_takes_little_memory_of_ours(make: Make, tmp_path: Path) -> None:
    """The rows of a mini-batch are far larger than what any of our processes may hold of it."""
    size = 256 << 20
    run = make(
        f"LINE = 'x' * 1023\ndef run(mini_batch):\n    return [LINE] * {size // 1024}\n",
        files=1,
        settings="max_concurrency_per_instance: 1",
    )
    run.start()
    peaks: dict[str, int] = {}
    while run.process is not None and run.process.poll() is None:
        for role in ("master", "agent", "worker"):
            for pid in run.pids(role):
                peaks[role] = max(peaks.get(role, 0), peak_kib(pid))
    code, text = run.finish()
    assert code == 0, text
    assert run.output.stat().st_size == size
    assert set(peaks) == {"master", "agent", "worker"}
    # The list itself holds one text very often: 2 MB of pointers.
    assert {role: peak for role, peak in peaks.items() if peak > 160 << 10} == {}


def peak_kib(pid: int) -> int:
    """VmHWM: the most memory that a process ever had; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
