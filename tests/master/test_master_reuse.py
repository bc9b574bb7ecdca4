"""Digests of what lies at a place, the key of a step's settings, and what steps have made."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from windrow.spec.effective.job import DataInput, EffectiveStep, LiteralInput, Rows, StepOutput
from windrow_master.datastores import Datastores
from windrow_master.reuse import digests as digests_module
from windrow_master.reuse.digest_cache import KEPT_S, remove_unused
from windrow_master.reuse.digests import Digests, NoDigest, Place
from windrow_master.reuse.key import settings_key
from windrow_master.reuse.notes import KEPT, ReuseNote, ReuseNotes
from windrow_master.roots import Roots

OLD_S = 100
DEADLINE_S = 180


def wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, f"not within {DEADLINE_S} s: {what}"
        time.sleep(0.01)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with files in folders."""
    folder = tmp_path / "data"
    for name in ("a/z", "a-1", "b", "c/d/e"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def digests(tmp_path: Path) -> Digests:
    return Digests(tmp_path / "cache", Datastores({"store": str(tmp_path / "store")}).resolve)


def of(digests: Digests, path: Path, type_: str = "uri_folder") -> str:
    return digests.of(Place(type_, str(path)))


CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda folder: (folder / "b").write_text("B"),
    "a name": lambda folder: (folder / "b").rename(folder / "bb"),
    "one more": lambda folder: (folder / "c" / "new").write_text(""),
    "one less": lambda folder: (folder / "a" / "z").unlink(),
    "a folder without files": lambda folder: (folder / "c" / "empty").mkdir(),
    "a folder that was emptied": lambda folder: (folder / "c" / "d" / "e").rename(folder / "c" / "e"),
    "two swapped": lambda folder: ((folder / "b").write_text("a-1"), (folder / "a-1").write_text("b")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_content_is_another_digest(digests: Digests, data: Path, change: str) -> None:
    before = of(digests, data)
    CHANGES[change](data)
    assert of(digests, data) != before


def test_the_same_content_is_the_same_digest_wherever_and_whenever(digests: Digests, data: Path) -> None:
    before = of(digests, data)
    os.utime(data / "b", (1, 1))
    assert of(digests, data) == before
    data.rename(data.with_name("elsewhere"))
    assert of(digests, data.with_name("elsewhere")) == before


def test_a_change_that_keeps_length_and_time_is_seen(digests: Digests, data: Path) -> None:
    file = data / "b"
    before = of(digests, data)
    status = file.stat()
    file.write_text("c")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert of(digests, data) != before


def test_files_at_rest_are_read_once(digests: Digests, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr("windrow_master.reuse.digest_cache.time.time_ns", lambda: int((now + OLD_S) * 1e9))
    read: list[bytes] = []

    def reading(path: bytes, roots: Roots | None) -> object:
        read.append(path.rpartition(b"/")[2])
        return whole(path, roots)

    whole = digests_module._read
    monkeypatch.setattr(digests_module, "_read", reading)
    before = of(digests, data)
    assert sorted(read) == [b"a-1", b"b", b"e", b"z"]
    read.clear()
    (data / "a-1").write_text("longer")
    (data / "aa").write_text("new")
    (data / "c" / "d" / "e").unlink()
    assert of(digests, data) != before
    assert sorted(read) == [b"a-1", b"aa"]


def test_a_file_just_written_is_read_again(digests: Digests, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of(digests, data)
    read: list[bytes] = []
    whole = digests_module._read
    monkeypatch.setattr(digests_module, "_read", lambda path, roots: (read.append(path), whole(path, roots))[1])
    of(digests, data)
    assert len(read) == 4


def test_a_file_just_written_that_takes_long_to_read_is_read_again(
    digests: Digests, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, read = [time.time()], []
    monkeypatch.setattr("windrow_master.reuse.digest_cache.time.time_ns", lambda: int(now[0] * 1e9))

    def reading(path: bytes, roots: Roots | None) -> object:
        read.append(path)
        found = whole(path, roots)
        now[0] += OLD_S
        return found

    whole = digests_module._read
    monkeypatch.setattr(digests_module, "_read", reading)
    for _ in range(3):
        of(digests, data / "b", "uri_file")
    assert len(read) == 2


def test_a_cache_that_is_torn_costs_time_alone(digests: Digests, data: Path, tmp_path: Path) -> None:
    before = of(digests, data)
    (cache,) = (tmp_path / "cache").iterdir()
    content = cache.read_bytes()
    for torn in (b"", content[:50], content[: len(content) // 2], b"\0" * len(content), b"\xff" * len(content)):
        cache.write_bytes(torn)
        assert of(digests, data) == before


@pytest.mark.parametrize("why", ["no folder", "full disk"])
def test_a_cache_that_cannot_be_written_costs_time_alone(
    digests: Digests, data: Path, tmp_path: Path, why: str
) -> None:
    want = of(digests, data)
    shutil.rmtree(tmp_path / "cache")
    if why == "no folder":
        (tmp_path / "cache").write_text("")
    else:
        place = hashlib.sha256(os.fsencode(data)).hexdigest()
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / f".{place}.{os.getpid()}").symlink_to("/dev/full")
    assert of(digests, data) == want
    assert why == "no folder" or not list((tmp_path / "cache").iterdir())


def test_caches_of_places_that_nobody_asks_for_are_removed(digests: Digests, data: Path, tmp_path: Path) -> None:
    of(digests, data)
    of(digests, data / "a")
    first, second = (tmp_path / "cache").iterdir()
    ended = subprocess.Popen(["true"])
    ended.wait()
    left = first.with_name(f".{first.name}.{ended.pid}")
    at_work = first.with_name(f".{first.name}.{os.getpid()}")
    for partial in (left, at_work):
        partial.touch()
    silly = first.with_name(".nfs00000000014ab2cd00000001")
    silly.touch()
    remove_unused(tmp_path / "cache")
    assert first.exists() and second.exists() and at_work.exists() and silly.exists() and not left.exists()
    long_ago = time.time() - KEPT_S - 1
    os.utime(first, (long_ago, long_ago))
    remove_unused(tmp_path / "cache")
    assert not first.exists() and second.exists()


def test_a_place_that_is_not_there_has_no_digest(digests: Digests, tmp_path: Path) -> None:
    with pytest.raises(NoDigest, match=r"gone cannot be read: No such file"):
        of(digests, tmp_path / "gone")


def test_a_pipe_has_no_digest(digests: Digests, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NoDigest, match="is not a file"):
        of(digests, tmp_path / "pipe", "uri_file")


@pytest.mark.parametrize("what", ["file", "folder", "input", "table", "store"])
def test_nothing_is_read_outside_the_datastores(tmp_path: Path, what: str) -> None:
    """A served master looks at what the clients name: links to all of a disk among it."""
    inside, secret = tmp_path / "inside", tmp_path / "secret"
    for folder in (inside / "sub", secret):
        folder.mkdir(parents=True)
        (folder / "file").write_text("")
    digests = Digests(tmp_path / "cache", str, Roots([inside, "s3://bucket/ours"]))
    place = Place("uri_folder", str(inside))
    digests.of(place)
    if what == "table":
        (inside / "MLTable").write_text(f"paths: [{{file: {secret}/file}}]\ntransformations: [read_delimited]\n")
        place = Place("mltable", str(inside))
    elif what == "store":
        place = Place("uri_folder", "s3://bucket/theirs")
    elif what == "input":
        place = Place("uri_file", str(secret / "file"))
    else:
        (inside / "sub" / "link").symlink_to(secret if what == "folder" else secret / "file")
    with pytest.raises(NoDigest, match="outside the datastores"):
        digests.of(place)


def test_the_process_that_makes_digests_ends_with_its_master(data: Path, tmp_path: Path) -> None:
    with (data / "long").open("wb") as file:
        file.truncate(1 << 42)
    asks = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom windrow_master.datastores import Datastores\n"
        "from windrow_master.reuse.digest_processes import DigestProcesses\n"
        "from windrow_master.reuse.digests import Place\n"
        "folder, data = map(Path, sys.argv[1:])\n"
        "asking = DigestProcesses(folder, Datastores({}), None)\n"
        "asyncio.run(asking.digests({'inputs.data': Place('uri_folder', str(data))}))\n"
    )
    master = subprocess.Popen([sys.executable, "-c", asks, str(tmp_path), str(data)])
    try:
        wait_until(lambda: bool(list(tmp_path.glob(".*"))), "the data is being read")
        (partial,) = tmp_path.glob(".*")
        reads = Path("/proc", partial.name.rpartition(".")[2])
        assert reads.exists()
    finally:
        master.kill()
        master.wait()
    wait_until(lambda: not reads.exists(), "the process has ended")


def test_a_table_is_its_definition_and_all_that_it_names(digests: Digests, tmp_path: Path) -> None:
    table, store, other = tmp_path / "table", tmp_path / "store", tmp_path / "other"
    for folder in (table, store, other):
        folder.mkdir()
        (folder / "rows.csv").write_text("a\n1\n")
    text = (
        "paths:\n- pattern: ../other/*.csv\n- pattern: azureml://datastores/store/paths/*.csv\n"
        "transformations:\n- read_delimited: {}\n"
    )
    (table / "MLTable").write_text(text)
    before = of(digests, table, "mltable")
    (table / "rows.csv").write_text("a\n2\n")  # lies beside it, and is not named
    assert of(digests, table, "mltable") == before
    seen = {before}
    for file in (other / "rows.csv", store / "rows.csv"):
        file.write_text("a\n3\n")
        seen.add(of(digests, table, "mltable"))
    (table / "MLTable").write_text(text + "- take: 3\n")
    seen.add(of(digests, table, "mltable"))
    assert len(seen) == 4


STEP = EffectiveStep(
    name="score",
    code_digest="0" * 64,
    entry_script="score.py",
    inputs={"data": DataInput("uri_folder", "ro_mount", "/data"), "n": LiteralInput("3")},
    input_data=("data",),
    arguments=("--n", "${{inputs.n}}"),
    outputs={"out": StepOutput("uri_folder", "rw_mount", "/out")},
    reuse=True,
)
INPUTS = {"data": "/data", "n": "3"}
PYTHON = "build:/usr/bin/python3"

DECISIVE: dict[str, EffectiveStep] = {
    "name": STEP._replace(name="other"),
    "code": STEP._replace(code_digest="1" * 64),
    "arguments": STEP._replace(arguments=("--n", "4")),
    "literal": STEP._replace(inputs={**STEP.inputs, "n": LiteralInput("4")}),
    "mode": STEP._replace(inputs={**STEP.inputs, "data": DataInput("uri_folder", "download", "/data")}),
    "output": STEP._replace(outputs={"out": StepOutput("uri_folder", "rw_mount", "/elsewhere")}),
    "size": STEP._replace(mini_batch_size=5),
    "rows": STEP._replace(rows=Rows(format="csv")),
    "variables": STEP._replace(environment_variables={"A": "b"}),
    "command": STEP._replace(command="true"),
}
UNDECISIVE: dict[str, EffectiveStep] = {
    "compute": STEP._replace(compute="gpu"),
    "nodes": STEP._replace(instance_count=3),
    "thresholds": STEP._replace(error_threshold=3, mini_batch_error_threshold=1),
    "retries": STEP._replace(max_retries=9, run_invocation_timeout_s=7),
    "logs": STEP._replace(logging_level="DEBUG", copy_logs_to_parent=True, profiling_module="cProfile"),
    "asset": STEP._replace(outputs={"out": StepOutput("uri_folder", "rw_mount", "/out", asset_name="a")}),
}


@pytest.mark.parametrize("what", DECISIVE)
def test_settings_that_decide_what_a_step_makes(what: str) -> None:
    assert settings_key(DECISIVE[what], INPUTS, PYTHON, "mine") != settings_key(STEP, INPUTS, PYTHON, "mine")


@pytest.mark.parametrize("what", UNDECISIVE)
def test_settings_that_decide_nothing_of_it(what: str) -> None:
    assert settings_key(UNDECISIVE[what], INPUTS, PYTHON, "mine") == settings_key(STEP, INPUTS, PYTHON, "mine")


def test_another_place_of_an_input_is_another_key() -> None:
    assert settings_key(STEP, {**INPUTS, "data": "/moved"}, PYTHON, "mine") != settings_key(
        STEP, INPUTS, PYTHON, "mine"
    )


def test_another_python_is_another_key() -> None:
    assert settings_key(STEP, INPUTS, "build:/usr/bin/python4", "mine") != settings_key(STEP, INPUTS, PYTHON, "mine")


def test_no_step_of_another_project_is_reused() -> None:
    assert settings_key(STEP, INPUTS, PYTHON, "theirs") != settings_key(STEP, INPUTS, PYTHON, "mine")


def test_steps_of_one_key_that_end_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    made = ReuseNotes(tmp_path)
    with ThreadPoolExecutor(KEPT) as pool:
        for number in range(KEPT):
            pool.submit(made.add, "key", ReuseNote("job", number, {}, {}, "{}"))
    assert {one.step_id for one in made.find("key")} == set(range(KEPT))


def test_the_last_few_that_were_made_are_kept(tmp_path: Path) -> None:
    made = ReuseNotes(tmp_path)
    assert made.find("key") == []
    for number in range(KEPT + 3):
        made.add("key", ReuseNote(f"job{number}", number, {"inputs.a": "1"}, {}, "{}"))
    made.add("key", ReuseNote("again", KEPT + 2, {}, {}, "{}"))
    found = made.find("key")
    assert [one.job_id for one in found[:2]] == ["again", f"job{KEPT + 1}"] and len(found) == KEPT
    assert found[1].inputs == {"inputs.a": "1"}
    (tmp_path / "key.json").write_text("[{}]")
    assert made.find("key") == []
