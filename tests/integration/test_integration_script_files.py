"""What scripts hand in while they run, by `azureml.core`: files of their run, and models. All of it is kept by the
master when the call returns, and once, whatever is tried again.

Reference: docs/reference/azure-ml/parallel-job.md#files-and-models-of-scripts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from embedded_run import EmbeddedRun
from served import Served
from windrow import JobFailed
from windrow_agent.sandbox.confinement import kernel_abi
from windrow_agent.sandbox.policy import STRICT_ABI
from windrow_command import windrow as command
from windrow_master.crash_points import VARIABLE

Make = Callable[..., EmbeddedRun]

HANDS_IN = """\
import os, subprocess, sys, tempfile
from azureml.core import Model, Run

step = Run.get_context()


def run(mini_batch):
    (path,) = mini_batch
    name = os.path.basename(path)
    folder = tempfile.TemporaryDirectory()
    mine = folder.name
    os.makedirs(os.path.join(mine, "net", "below"), exist_ok=True)
    for file in ("net/weights.txt", "net/below/more.txt"):
        with open(os.path.join(mine, file), "w") as out:
            out.write("weights of " + name)
    step.upload_file("outputs/" + name, os.path.join(mine, "net/weights.txt"))
    step.upload_folder("whole/" + name, os.path.join(mine, "net"))
    step.parent.upload_file("summary/" + name, open(os.path.join(mine, "net/weights.txt")))
    workspace = step.experiment.workspace
    model = Model.register(workspace, os.path.join(mine, "net"), "net." + name, tags={"of": name}, description="a net")
    again = Model.register(workspace, os.path.join(mine, "net"), "net." + name, tags={"of": name}, description="a net")
    other = step.register_model("one." + name, "outputs/" + name)
    child = "from azureml.core import Run; Run.get_context().upload_file('child/%s', sys.argv[1])" % name
    subprocess.run([sys.executable, "-c", "import sys; " + child, path], check=True)
    found = Model.get_model_path("net." + name)
    got = Model(workspace, "one." + name).download(os.path.join(mine, "got"), exist_ok=True)
    step.download_file("whole/%s/below/more.txt" % name, os.path.join(mine, "back.txt"))
    texts = [open(one).read() for one in (os.path.join(found, "below/more.txt"), got, os.path.join(mine, "back.txt"))]
    assert texts == ["weights of " + name] * 3, texts
    assert [one.id for one in Model.list(workspace, tags=[["of", name]])] == [model.id] and model.tags == {"of": name}
    assert {"outputs/" + name, "child/" + name} <= set(step.get_file_names())
    assert step.parent.get_file_names().count("summary/" + name) == 1
    part = step.child_run("part " + name)
    part.upload_file("net", os.path.join(mine, "net/weights.txt"))
    part.register_model("part." + name, "net")
    part.download_file("net", os.path.join(mine, "net of part"))
    assert part.get_file_names() == ["net"] and open(os.path.join(mine, "net of part")).read() == "weights of " + name
    return [f"{model.id} {again.id} {other.id}"]
"""
NAMES = [f"{kind}.f{number:05d}" for kind in ("net", "one", "part") for number in range(4)]
CONFINED = [
    "off",
    pytest.param("strict", marks=pytest.mark.skipif(kernel_abi() < STRICT_ABI, reason="this kernel cannot confine")),
]


def asked(run: EmbeddedRun, *words: str) -> Any:
    told = command(*words, "--format", "json", cwd=run.folder)
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


@pytest.mark.parametrize("sandbox", CONFINED)
def test_files_and_models_of_a_script_are_kept(make: Make, sandbox: str) -> None:
    run = make(HANDS_IN)
    code, text = run.run("--sandbox", sandbox)
    assert code == 0, text
    rows = (run.folder / "out.txt").read_text().splitlines()
    assert sorted(rows) == [f"net.f{n:05d}:1 net.f{n:05d}:1 one.f{n:05d}:1" for n in range(4)]
    listed = {one["name"]: one for one in asked(run, "model", "list")}
    assert sorted(listed) == NAMES
    one = listed["net.f00002"]
    assert (one["version"], one["tags"], one["description"], one["step"]) == ("1", {"of": "f00002"}, "a net", "score")
    assert (Path(one["path"]) / "below" / "more.txt").read_text() == "weights of f00002"
    logs = {one["path"] for one in asked(run, "job", "logs", "last")}
    expected = [f"{folder}/f{n:05d}" for n in range(4) for folder in ("score/user/files/outputs", "user/files/summary")]
    assert {*expected, *(f"score/user/files/child/f{n:05d}" for n in range(4))} <= logs
    assert {f"score/user/files/part f{n:05d}/net" for n in range(4)} <= logs
    shown = command("job", "logs", "last", "score/user/files/whole/f00001/below/more.txt", cwd=run.folder)
    assert shown.stdout == "weights of f00001"
    assert "step score of job" in command("model", "show", "net.f00002", cwd=run.folder).stdout


FAILS_ONCE = """\
import os
from azureml.core import Model, Run

def run(mini_batch):
    (path,) = mini_batch
    content = os.environ["TRIED"] + os.path.basename(path) + ".txt"
    with open(content, "w") as file:
        file.write("always the same")
    run = Run.get_context()
    run.upload_file("outputs/model.txt", content)
    model = Model.register(run.experiment.workspace, content, "once")
    if not os.path.exists(content + ".tried"):
        open(content + ".tried", "w").close()
        os._exit(1)
    return [model.id]
"""


def test_a_mini_batch_that_runs_again_registers_once(make: Make, tmp_path: Path) -> None:
    run = make(FAILS_ONCE, files=1, settings=f"environment_variables: {{TRIED: {tmp_path}/}}")
    for number in (1, 2):
        code, text = run.run()
        assert code == 0, text
        assert (run.folder / "out.txt").read_text() == f"once:{number}\n", "a job of its own is another registration"
        (tmp_path / "f00000.txt.tried").unlink()
    assert [one["version"] for one in asked(run, "model", "list", "--name", "once")] == ["2", "1"]


ASKS_BY_ANOTHERS_SOCKET = """\
import json, os, socket, time

def asked(path):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    try:
        connection.send(json.dumps({"do": "names"}).encode())
        return connection.recv(1000).decode() or "closed"
    except (ConnectionResetError, BrokenPipeError):
        return "closed"

def run(mini_batch):
    own = json.loads(os.environ["WINDROW_RUN"])["requests_path"]
    folder = os.path.dirname(own)
    while len(os.listdir(folder)) < 2:
        time.sleep(0.01)
    (other,) = set(os.listdir(folder)) - {os.path.basename(own)}
    return [f"{asked(own)} {asked(os.path.join(folder, other))}"]
"""


def test_a_worker_is_not_answered_by_the_socket_of_another(make: Make) -> None:
    run = make(ASKS_BY_ANOTHERS_SOCKET, files=4)
    code, text = run.run("--slots", "2")
    assert code == 0, text
    assert set((run.folder / "out.txt").read_text().splitlines()) == {'{"done": true} closed'}
    assert not list(run.folder.rglob("*.sock")) and "asks by its socket: refused" in "".join(
        file.read_text() for file in run.folder.rglob("agent.stderr.log")
    )


ASKS_FOR_A_LURE = """\
from azureml.core import Model

def run(mini_batch):
    try:
        return [open(Model.get_model_path("lure")).read()]
    except Exception as error:
        return [str(error)]
"""


@pytest.mark.parametrize("sandbox", CONFINED)
def test_a_confined_script_is_shown_no_model_that_it_may_not_read(make: Make, tmp_path: Path, sandbox: str) -> None:
    secret, lure = tmp_path / "elsewhere" / "secret", tmp_path / "lure"
    secret.parent.mkdir()
    secret.write_text("the secret")
    lure.symlink_to(secret)
    run = make(ASKS_FOR_A_LURE, files=1)
    made = command("model", "create", "--name", "lure", "--path", str(lure), cwd=run.folder)
    assert made.returncode == 0, made.stderr
    code, text = run.run("--sandbox", sandbox)
    assert code == 0, text
    told = (run.folder / "out.txt").read_text()
    assert ("is not for scripts of this node" in told, "the secret" in told) == (sandbox != "off", sandbox == "off")


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Served]:
    """A master at one address, whichever of its processes serves."""
    processes = Served(tmp_path)
    yield processes
    processes.close()


def job_file(folder: Path, data: Path, script: str = HANDS_IN, files: int = 4) -> Path:
    """A job with a script and its data."""
    (folder / "code").mkdir()
    (folder / "code" / "entry.py").write_text(script)
    data.mkdir()
    for number in range(files):
        (data / f"f{number:05d}").touch()
    (folder / "job.yml").write_text(
        "type: pipeline\njobs:\n  score:\n    type: parallel\n    mini_batch_size: 1\n"
        f"    inputs: {{data: {{type: uri_folder, path: {data}}}}}\n    input_data: ${{{{inputs.data}}}}\n"
        "    outputs: {rows: {type: uri_file}}\n    task: {type: run_function, code: ./code, entry_script: entry.py, "
        "append_row_to: '${{outputs.rows}}'}\n"
    )
    return folder / "job.yml"


@pytest.mark.parametrize("point", ["script_files.written", "script_files.content"])
def test_a_master_killed_in_the_middle_keeps_it_once(embedded: Served, tmp_path: Path, point: str) -> None:
    embedded.start_agent("alpha")
    embedded.start_master(**{VARIABLE: f"{point}:2"})
    with embedded.client() as client:
        job = client.submit(job_file(tmp_path, tmp_path / "data"))
        embedded.wait_master_killed()
        embedded.start_master()
        ended = client.wait(job.job_id, timeout_s=120)
        assert ended.state.succeeded, ended.message
        assert sorted(model.name for model in client.registry.list("model")) == NAMES
        for name in NAMES:
            (model,) = client.registry.list("model", name)
            assert model.version == "1" and Path(model.path).exists()
        assert not [log.path for log in client.logs(job.job_id) if ".windrow-partial" in log.path]


def test_models_are_in_the_default_datastore_that_all_nodes_see(served: Served, tmp_path: Path) -> None:
    assert served.datastore is not None
    served.start_agent("one")
    with served.client() as client:
        job = client.submit(job_file(tmp_path, served.datastore / "data"))
        assert client.wait(job.job_id, timeout_s=120).state.succeeded
        places = {model.name: Path(model.path) for model in client.registry.list("model")}
    assert sorted(places) == NAMES
    assert {place.parents[1] for place in places.values()} == {served.datastore / ".models"}
    assert places["one.f00003"].read_text() == "weights of f00003"


KIB = 1 << 10
HANDS_IN_TOO_MUCH = """\
import os, tempfile
from azureml.core import Model, Run

run_ = Run.get_context()
workspace = run_.experiment.workspace
mine = tempfile.mkdtemp()


def made(kib, name):
    path = os.path.join(mine, name)
    with open(path, "wb") as file:
        for _ in range(kib):
            file.write(name.encode() * (1024 // len(name)) + bytes(1024 % len(name)))
    return path


def told(what, *given):
    try:
        what(*given)
        return "kept"
    except RuntimeError as error:
        return str(error).replace("\\n", " | ")


def run(mini_batch):
    return [
        told(run_.upload_file, "outputs/large", made(101, "large")),
        told(Model.register, workspace, made(101, "model"), "large"),
        told(run_.upload_file, "outputs/a", made(90, "a")),
        told(run_.upload_file, "outputs/a", made(90, "a")),
        told(run_.upload_file, "outputs/a", made(90, "a")),
        told(run_.upload_file, "outputs/a", made(90, "a")),
        told(Model.register, workspace, made(90, "b"), "fits"),
        told(Model.register, workspace, made(90, "b"), "equal"),
        told(run_.parent.upload_file, "outputs/c", made(90, "c")),
        told(run_.upload_file, "outputs/d", made(90, "d")),
        told(Model.register, workspace, made(90, "e"), "too-much"),
        told(run_.upload_file, "outputs/f", made(20, "f")),
    ]
"""


def test_what_scripts_hand_in_is_bounded_and_nothing_half_is_left(embedded: Served, tmp_path: Path) -> None:
    limits = ("--limit", f"script_bytes_per_call={100 * KIB}", "--limit", f"script_bytes_per_job={300 * KIB}")
    embedded.start_agent("alpha")
    embedded.start_master(*limits)
    with embedded.client() as client:
        job = client.submit(job_file(tmp_path, tmp_path / "data", HANDS_IN_TOO_MUCH, files=1))
        assert client.wait(job.job_id, timeout_s=120).state.succeeded
        rows = list(client.results(job.job_id))
        call = "This call hands in more than 102,400 bytes, which is the master's limit script_bytes_per_call. "
        in_all = "The scripts of this job hand in more than 307,200 bytes in all, which is the master's limit script_b"
        expected = [call, call, *["kept"] * 7, in_all, in_all, "kept"]
        assert len(rows) == len(expected), rows
        assert all(row.startswith(words) for row, words in zip(rows, expected, strict=True)), rows
        assert "--limit script_bytes_per_call=NUMBER" in rows[0] and "--limit script_bytes_per_job=NUMBER" in rows[-2]
        assert sorted(model.name for model in client.registry.list("model")) == ["equal", "fits"]
    files = [path for path in (embedded.state / "jobs").rglob("*") if "user/files" in str(path) and path.is_file()]
    assert sorted(path.name for path in files) == ["a", "c", "f"], "and nothing half"
    contents = list(Path(embedded.state).rglob(".models/*"))
    assert len(contents) == 1, contents


ASKS_FOR_A_MODEL = """\
from azureml.core import Model

def told(find):
    try:
        return open(find()).read()
    except RuntimeError as error:
        return str(error).replace("\\n", " ")


def run(mini_batch):
    return [told(lambda: Model.get_model_path("one.f00000")), told(lambda: Model.get_model_path("part.f00000"))]
"""


def test_a_model_that_is_not_what_was_registered_is_given_to_no_script(served: Served, tmp_path: Path) -> None:
    assert served.datastore is not None
    served.start_agent("one")
    with served.client() as client:
        job = client.submit(job_file(tmp_path, served.datastore / "data", files=1))
        assert client.wait(job.job_id, timeout_s=120).state.succeeded
        (model,) = client.registry.list("model", "net.f00000")
        (Path(model.path) / "below" / "more.txt").write_text("weights of someone else")
        (other,) = client.registry.list("model", "one.f00000")
        Path(other.path).write_text("weights of someone else")
        (tmp_path / "asks").mkdir()
        asks = job_file(tmp_path / "asks", served.datastore / "other", ASKS_FOR_A_MODEL, files=1)
        job = client.submit(asks)
        ended = client.wait(job.job_id, timeout_s=120)
        assert ended.state.succeeded, ended.message
        changed, same = client.results(job.job_id)
        assert changed.startswith("The model one.f00000:1 is not what was registered: its files in "), changed
        assert same == "weights of f00000"
        asks.write_text(
            asks.read_text().replace(
                "}}\n    input_data", "}, net: {type: custom_model, path: 'azureml:net.f00000:1'}}\n    input_data"
            )
        )
        given = client.submit(asks)
        with pytest.raises(JobFailed, match=r"The registered model at .*/net, which is input 'net' .* have changed"):
            client.wait(given.job_id, timeout_s=120)
