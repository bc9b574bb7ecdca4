"""What a recipe of remote data needs on a node, what the worker gets instead, and the budget of the fetcher."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from agent_rig import eventually
from own_children import own_children
from scripted_master import DEADLINE_S
from windrow.rpc.v1 import work_pb2 as work
from windrow.storage.errors import StorageError
from windrow_agent import fetch_process
from windrow_agent.config import AgentConfig
from windrow_agent.fetch_process.messages import Decoder, Part, encode
from windrow_agent.fetch_process.transfers import Transfers, failure_of
from windrow_agent.fetching.fetcher import Fetcher, NotFetched
from windrow_agent.fetching.recipes import read_recipe
from windrow_agent.sandbox.policy import Sandbox
from windrow_agent.steps.lineages import Lineage
from windrow_agent.steps.reader import local_reader, needs_fetching
from windrow_agent.steps.step import Step

FOLDER = Path("/node/fetched/7")
BOOT = str(Path(fetch_process.__file__).with_name("boot.py"))


def stamped(*names: str) -> bytes:
    return "\0".join(f'{name}\n3 "etag"' for name in names).encode()


@pytest.mark.parametrize(
    ("root", "names", "places"),
    [
        ("s3://b/in", ["a/x", "y z%20"], ["0/a/x", "0/y z%20"]),
        ("s3://b/in", ["a", "a/b", "a/b/c"], ["0/a", "1/a/b", "2/a/b/c"]),
        ("s3://b/in", ["a/b", "a"], ["0/a/b", "1/a"]),
        ("s3://b/in", ["x", "x"], ["0/x", "0/x"]),
        ("", ["s3://b/in/x", "s3://c/in/x", "gs://b/in/y"], ["0/in/x", "1/in/x", "0/in/y"]),
        ("https://h/d", ["a%20b.txt", "..%2f..%2fx", "%2e%2e"], ["0/a b.txt", "0/..%2f..%2fx", "0/%2e%2e"]),
    ],
)
def test_files_keep_their_names(root: str, names: list[str], places: list[str]) -> None:
    """A name that would have to be file and folder at once goes to a folder of its own."""
    fetch = read_recipe({"kind": "files", "root": root, "remote": True}, stamped(*names), FOLDER)
    assert fetch.local.decode().split("\0") == [str(FOLDER / place) for place in places]
    assert [part.place for part in fetch.parts] == list(dict.fromkeys(places))
    assert {(part.size, part.version) for part in fetch.parts} == {(3, '"etag"')}
    assert fetch.size == 3 * len(set(places))
    urls = {f"{root}/{name}" if root else name for name in names}
    assert {part.url for part in fetch.parts} == urls


@pytest.mark.parametrize("root", ["s3://b/in", "/in"])
def test_a_file_that_is_named_twice_is_copied_twice(root: str) -> None:
    """A script may change each copy."""
    remote = root.startswith("s3")
    names = stamped("x", "x", "y") if remote else b"x\0x\0y"
    fetch = read_recipe({"kind": "files", "root": root, "remote": remote, "copy": True}, names, FOLDER)
    places = ["0/x", "1/x", "0/y"]
    assert fetch.local.decode().split("\0") == [str(FOLDER / place) for place in places]
    assert [part.place for part in fetch.parts] == places


def test_a_local_file_that_cannot_be_copied_is_told_as_that(tmp_path: Path) -> None:
    gone = str(tmp_path / os.fsdecode(b"gone \xff"))
    with pytest.raises(StorageError) as error:
        asyncio.run(Transfers().fetch(tmp_path / "copies", [Part(gone, 3, "", "0/gone")], writable=True))
    cause, message = failure_of(error.value)
    assert cause == "load_failed"
    assert message.startswith(f"{tmp_path}/gone \\xff was there when the input was listed, but cannot be copied")
    assert "No such file or directory" in message and "written" not in message


def test_local_files_among_remote_ones_stay_where_they_are(tmp_path: Path) -> None:
    """Also those whose names hold line feeds, or are no UTF-8."""
    odd = os.fsencode(tmp_path) + b"/a\nb \xff"
    recipe = stamped("s3://b/x") + b"\0" + odd
    fetch = read_recipe({"kind": "files", "root": "", "remote": True}, recipe, FOLDER)
    assert fetch.local == os.fsencode(FOLDER / "0/x") + b"\0" + odd
    assert [part.url for part in fetch.parts] == ["s3://b/x"]


def test_copies_of_local_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("four")
    reader = {"kind": "files", "root": str(tmp_path), "copy": True}
    fetch = read_recipe(reader, b"x\0gone", FOLDER)
    assert [(part.url, part.size, part.place) for part in fetch.parts] == [
        (str(tmp_path / "x"), 4, "0/x"),
        (str(tmp_path / "gone"), 0, "0/gone"),
    ]
    assert needs_fetching(reader) and local_reader(reader) == {"kind": "files", "root": ""}


def test_tables_are_fetched_by_range() -> None:
    text = {"file": "s3://b/t.csv", "size": 100, "etag": "e", "begin": 10, "end": 30, "layout": 0}
    fetch = read_recipe({"kind": "table"}, json.dumps(text).encode(), FOLDER)
    assert (fetch.size, fetch.parts[0].keep_offsets) == (20, False)
    assert json.loads(fetch.local) == {**text, "local": str(FOLDER / "0")}
    parquet = {"file": "s3://b/t.pq", "size": 100, "etag": "e", "row_group": 1, "spans": [[4, 50], [80, 100]]}
    fetch = read_recipe({"kind": "table"}, json.dumps(parquet).encode(), FOLDER)
    assert (fetch.size, fetch.parts[0].keep_offsets) == (66, True)
    local = {"file": "/data/t.csv", "size": 100, "mtime_ns": 1, "begin": 10, "end": 30, "layout": 0}
    assert read_recipe({"kind": "table"}, json.dumps(local).encode(), FOLDER).parts == []


def test_row_groups_of_one_file_share_a_local_one() -> None:
    """Bytes that several need, the footer above all, are fetched once."""
    group = {"file": "s3://b/t.pq", "size": 100, "etag": "e"}
    parts = [
        {**group, "row_group": 0, "spans": [[4, 50], [80, 100]]},
        {**group, "row_group": 1, "spans": [[45, 70], [80, 100]]},
        {"file": "/data/t.pq", "size": 9, "mtime_ns": 1, "row_group": 0},
        {**group, "file": "s3://b/u.pq", "row_group": 0, "spans": [[4, 80], [80, 100]]},
    ]
    fetch = read_recipe({"kind": "table"}, json.dumps({"key": ["k"], "parts": parts}).encode(), FOLDER)
    assert [(part.url, part.ranges, part.place) for part in fetch.parts] == [
        ("s3://b/t.pq", [[4, 70], [80, 100]], "0"),
        ("s3://b/u.pq", [[4, 100]], "2"),
    ]
    made = json.loads(fetch.local)
    places = [part.get("local") for part in made["parts"]]
    assert made["key"] == ["k"] and places == [f"{FOLDER}/0", f"{FOLDER}/0", None, f"{FOLDER}/2"]


def test_groups_of_files_keep_the_name_that_tells_their_key() -> None:
    reader = {"kind": "files", "root": "s3://b/in", "remote": True, "partition": {"keys": ["k"], "formats": ["/{k}/*"]}}
    fetch = read_recipe(reader, stamped("a/x", "a/y"), FOLDER)
    assert fetch.local.decode().split("\0") == ["s3://b/in/a/x", f"{FOLDER}/0/a/x", f"{FOLDER}/0/a/y"]
    assert local_reader(reader)["partition"] == {"keys": ["k"], "formats": ["/{k}/*"], "listed": True}


def fetch_processes() -> list[psutil.Process]:
    """Those of this process."""
    return own_children(lambda words: words[-3:-2] == [BOOT])


@pytest.mark.parametrize("restarts", [True, False])
def test_a_side_input_whose_process_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool) -> None:
    """The next one brings it, whole; where none can be started (no memory, say), that is told."""
    (tmp_path / "data").write_text("all of it")
    step = Step.open(work.StepSpec(step_id=1), tmp_path, "node-1", 1, 0, Lineage())

    async def bring() -> Path:
        fetcher = Fetcher(1 << 20, lambda *_: None, lambda *_: None)
        bringing = asyncio.create_task(fetcher.fetch_input(step, "data", str(tmp_path / "data"), writable=False))
        try:
            await eventually(fetch_processes)
            (step.fetched / "input-data").mkdir(parents=True)  # what the killed one has left
            if not restarts:
                monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
            fetch_processes()[0].kill()
            return await asyncio.wait_for(bringing, DEADLINE_S)
        finally:
            fetcher.close()

    if restarts:
        assert asyncio.run(bring()).read_text() == "all of it"
    else:
        with pytest.raises(NotFetched, match=r"fetches from remote storage cannot be started: .*no-python"):
            asyncio.run(bring())


AGENT = """
import asyncio, sys
from windrow_agent.fetch_process.client import FetchProcess

async def main():
    tree = {"folder": sys.argv[1], "tree": sys.argv[2], "writable": False, "user": None,
            "reach": {"places": [], "within": None, "closed": []}}
    await FetchProcess("The process that fetches").ask(tree)

asyncio.run(main())
"""


def test_a_fetch_process_whose_thread_hangs_ends_with_its_agent(tmp_path: Path) -> None:
    """However the agent ends, and before what the thread waits for gives up (30 s)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/data"
        agent = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path / "fetched"), address])
        try:
            server.settimeout(DEADLINE_S)
            asked, _ = server.accept()
            with asked:
                assert asked.recv(1), "a thread has asked, and is never answered"
                left = psutil.Process(agent.pid).children(recursive=True)
                assert len(left) == 2
                agent.kill()
                agent.wait()
                _, alive = psutil.wait_procs(left, 25)
                assert not alive
        finally:
            agent.kill()
            agent.wait()


@pytest.mark.parametrize("laid", ["a link", "a folder that is a link", "a pipe", "nothing"])
def test_what_a_script_lays_in_the_place_of_data_is_not_copied(tmp_path: Path, laid: str) -> None:
    """The process that fetches can read more than a script: the agent's token, for example."""
    store, secrets = tmp_path / "store", tmp_path / "secrets"
    for folder in (store / "data" / "below", store / "elsewhere", secrets / "below"):
        folder.mkdir(parents=True)
    (store / "elsewhere" / "file").write_text("in the datastore")
    (store / "data" / "file").write_text("x")
    for folder in (secrets / "below", secrets):
        (folder / "file").write_text("secret")
    (store / "data" / "link").symlink_to(store / "elsewhere" / "file")
    if laid == "a link":
        (store / "data" / "file").unlink()
        (store / "data" / "file").symlink_to(secrets / "file")
    elif laid == "a folder that is a link":
        (store / "data" / "below").rmdir()
        (store / "data" / "below").symlink_to(secrets / "below")
    elif laid == "a pipe":
        (store / "data" / "file").unlink()
        os.mkfifo(store / "data" / "file")
    # The operator's own link to the datastore is followed.
    (tmp_path / "named").symlink_to(store)
    spec = work.StepSpec(step_id=1, datastores=[os.fsencode(tmp_path / "named")])
    step = Step.open(spec, tmp_path / "node", "node-1", 1, 0, Lineage())

    async def bring() -> Path:
        fetcher = Fetcher(1 << 20, lambda *_: None, lambda *_: None)
        bringing = fetcher.fetch_input(step, "data", str(tmp_path / "named" / "data"), writable=True)
        try:
            return await asyncio.wait_for(bringing, DEADLINE_S)
        finally:
            fetcher.close()

    if laid == "nothing":
        assert (asyncio.run(bring()) / "link").read_text() == "in the datastore"
        return
    words = "is not a plain file any more" if laid == "a pipe" else f"outside the datastores of the master ({store})"
    with pytest.raises(NotFetched, match=re.escape(words)):
        asyncio.run(bring())
    copied = [path.read_text() for path in step.fetched.rglob("*") if path.is_file()]
    assert "secret" not in copied


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_messages_come_out_whole_however_they_are_cut(step: int) -> None:
    messages = [{"id": 1, "text": "ü\udcff"}, {"id": 2}, {"cancel": 1}]
    data = b"".join(map(encode, messages))
    decoder = Decoder()
    found = [one for at in range(0, len(data), step) for one in decoder.feed(data[at : at + step])]
    assert found == messages


@pytest.mark.parametrize("mode", ["off", "auto", "given", "strict"])
def test_a_confined_script_gets_no_copy_of_what_it_could_not_read_itself(tmp_path: Path, mode: str) -> None:
    """In a run on this machine, where there are no datastores. A link within an input is followed whatever the mode."""
    data, secrets, state = tmp_path / "data", tmp_path / "secrets", tmp_path / "state"
    for folder in (data, secrets, state):
        folder.mkdir()
        (folder / "file").write_text(folder.name)
    (data / "inside").symlink_to("file")
    (tmp_path / "named").symlink_to(data)
    spec = work.StepSpec(step_id=1, read_paths=[str(tmp_path / "named")])
    sandbox = Sandbox(
        AgentConfig(tmp_path / "node", ("unix:/no/master",), sandbox=mode, closed_paths=(str(state),)), {}
    )
    sandbox.closed = () if mode == "off" else (str(state),)  # as if no script could make files beside it

    def brought(node: str) -> str:
        step = Step.open(spec, tmp_path / node, "node-1", 1, 0, Lineage())

        async def bring() -> Path:
            fetcher = Fetcher(1 << 20, lambda *_: None, lambda *_: None, sandbox.reach_of_copies)
            bringing = fetcher.fetch_input(step, "data", str(tmp_path / "named"), writable=True)
            try:
                return await asyncio.wait_for(bringing, DEADLINE_S)
            finally:
                fetcher.close()

        try:
            return (asyncio.run(bring()) / "inside").read_text()
        except NotFetched as error:
            return str(error)

    assert brought("first") == "data"
    (data / "laid").symlink_to(secrets / "file")
    assert ("in no input of the step" in brought("second")) == (mode in ("given", "strict"))
    (data / "laid").unlink()
    (data / "laid").symlink_to(state / "file")
    assert (brought("third") == "data") == (mode == "off")
