"""How the entry script is found, imported and called."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from worker_driver import INIT_FAILED, PACKET, STOPPED, Start

ECHO = "def run(mini_batch):\n    return mini_batch\n"


def code_of(tmp_path: Path, files: dict[str, str]) -> Path:
    """A worker's folder whose code folder holds `files`."""
    folder = tmp_path / "prepared"
    for name, text in files.items():
        path = folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_calls_init_then_run_for_each_mini_batch_then_shutdown(start: Start) -> None:
    worker = start(
        "calls = []\n"
        "def init():\n    calls.append('init')\n"
        "def run(mini_batch):\n    calls.append('run')\n    return [','.join(calls)] * len(mini_batch)\n"
        "def shutdown():\n    print('shutdown after', calls)\n"
    )
    assert worker.ready().lease_id == 0
    first = worker.run(["a", "b"], lease_id=2**64 - 1)
    assert (first.lease_id, first.item_count, first.result_count, first.row_count) == (2**64 - 1, 2, 2, 2)
    assert first.rows == b"init,run\ninit,run\n"
    assert worker.run(["c"], lease_id=5).rows == b"init,run,run\n"
    worker.shut_down()
    assert worker.frame().type == STOPPED
    assert worker.wait() == 0
    assert worker.output() == "shutdown after ['init', 'run', 'run']\n"


@pytest.mark.parametrize(
    ("reader", "names", "expected"),
    [
        ({"kind": "files", "root": "/data"}, ["a.png", "sub/b c.png"], ["/data/a.png", "/data/sub/b c.png"]),
        ({"kind": "files", "root": "/data/"}, ["a"], ["/data/a"]),
        ({"kind": "files", "root": "/"}, ["a"], ["/a"]),
        ({"kind": "files", "root": ""}, ["/x/a\nb"], ["/x/a\nb"]),
        ({"kind": "none"}, [], []),
    ],
)
def test_gives_the_paths_of_a_file_mini_batch(
    start: Start, reader: dict[str, str], names: list[str], expected: list[str]
) -> None:
    worker = start("import json\ndef run(b):\n    return [json.dumps(b)]\n", reader=reader)
    worker.ready()
    frame = worker.run(names)
    assert json.loads(frame.rows) == expected
    assert frame.item_count == len(names)


def test_reads_a_long_recipe_from_its_file_and_removes_it(start: Start) -> None:
    worker = start("def run(b):\n    return [len(b), b[39999]]\n")
    worker.ready()
    path = worker.send_in_file(4, b"\0".join(b"%08d.png" % number for number in range(40000)))
    frame = worker.done()
    assert (frame.rows, frame.item_count) == (b"40000\n/data/00039999.png\n", 40000)
    assert not path.exists()


def test_a_recipe_that_cannot_be_read_is_the_nodes_fault(start: Start) -> None:
    worker = start(ECHO)
    worker.ready()
    worker.send_in_file(4, b"")
    assert worker.done().item_count == 0
    absent = os.fsencode(worker.scratch / "absent")
    worker.work.send(PACKET.pack(1, 1, 0, 1, 5, 0, 0, 0) + bytes(4) + absent)
    assert worker.failed().cause == "node_fault"
    worker.send_in_file(6, b"a\0b", written=b"a\0c")
    assert worker.failed().cause == "node_fault"
    assert worker.run(["a"]).rows == b"/data/a\n"


@pytest.mark.parametrize(
    ("signature", "gets_context"),
    [
        ("def run(mini_batch):", False),
        ("def run(mini_batch, mini_batch_context):", True),
        ("def run(a, anything=None):", True),
        ("def run(*arguments):", False),
        ("def run(a, *, flag=1):", False),
        ("def run(a, /, b):", True),
    ],
)
def test_passes_the_context_as_second_positional_argument_only(
    start: Start, signature: str, gets_context: bool
) -> None:
    worker = start(f"{signature}\n    return [sorted(type(v).__name__ for v in locals().values() if v is not None)]\n")
    worker.ready()
    assert (b"MiniBatchContext" in worker.run(["a"]).rows) is gets_context


@pytest.mark.parametrize(
    ("define", "gets_context"),
    [
        ("import functools\ndef deco(f):\n    @functools.wraps(f)\n    def w(*a):\n        return f(*a)\n    return w\n"
         "@deco\ndef run(a, b):\n    return [type(b).__name__]\n", True),
        ("import functools\ndef f(x, a):\n    return ['one']\nrun = functools.partial(f, 1)\n", False),
        ("class R:\n    def __call__(self, a, c):\n        return [type(c).__name__]\nrun = R()\n", True),
        ("class R:\n    def go(self, a):\n        return ['one']\nrun = R().go\n", False),
    ],
)  # fmt: skip
def test_looks_through_decorators_and_callable_objects(start: Start, define: str, gets_context: bool) -> None:
    worker = start(define)
    worker.ready()
    assert worker.run(["a"]).rows == (b"MiniBatchContext\n" if gets_context else b"one\n")


def test_the_context_tells_which_mini_batch_it_is(start: Start) -> None:
    worker = start(
        "def run(b, c):\n"
        "    first = c.global_row_index_lower_bound\n"
        "    return [c.minibatch_index, c.retry_count, first, c.partition_key_value, c.dataset]\n"
    )
    worker.ready()
    worker.send(9, ["a"], index=17, first=170)
    assert worker.done().rows == b"17\n0\n170\nNone\nMiniBatchDataset()\n"
    worker.send(10, ["a"], index=18, first=180, attempt=3)
    assert worker.done().rows.startswith(b"18\n2\n180\n")


def test_a_list_tells_its_task_id_and_is_a_list_else(start: Start) -> None:
    worker = start(
        "import copy, json, pickle\n"
        "def run(b):\n"
        "    assert isinstance(b, list) and b == list(b) and repr(b) == repr(list(b))\n"
        "    assert type(pickle.loads(pickle.dumps(b))) is type(copy.deepcopy(b)) is type(b[:]) is list\n"
        "    assert pickle.loads(pickle.dumps(b)) == copy.copy(b) == b\n"
        "    b.append('more')\n"
        "    return [b.task_id, *json.loads(json.dumps(b))]\n"
    )
    worker.ready()
    worker.send(9, ["a", "b"], index=17)
    assert worker.done().rows == b"17\n/data/a\n/data/b\nmore\n"


def test_a_script_that_takes_a_list_for_a_table_is_told(start: Start) -> None:
    worker = start("def run(b):\n    assert not hasattr(b, '__fspath__')\n    return list(b.price)\n")
    worker.ready()
    worker.send(9, ["a"])
    message = worker.frame().message
    assert "AttributeError: 'MiniBatch' object has no attribute 'price': run() got a list." in message
    assert "--as table" in message and message.endswith("(score.py, line 3)")


def test_arguments_folder_and_environment_are_those_of_the_script(start: Start) -> None:
    worker = start(
        "import json, os, sys\n"
        "NAMES = ['AZUREML_RUN_ID', 'AZUREML_CR_NODE_RANK', 'HostName', 'AZUREML_BI_OUTPUT_PATH', 'MINE']\n"
        "def run(b):\n"
        "    found = [os.environ[n] for n in NAMES]\n"
        "    return [json.dumps([sys.argv, sys.path[0], os.getcwd(), __file__, __name__, *found])]\n",
        arguments=("--model", "a b", "ü"),
        environment={"MINE": "x", "AZUREML_RUN_ID": "set by the step"},
    )
    worker.ready()
    argv, path, cwd, file, name, *environment = json.loads(worker.run(["a"]).rows)
    script = str(worker.code / "score.py")
    assert (argv, path, cwd, file) == ([script, "--model", "a b", "ü"], str(worker.code), str(worker.code), script)
    assert name == "score"
    assert environment == ["set by the step", "3", "node-a", str(worker.folder / "output"), "x"]


def test_a_script_that_reads_its_last_argument_gets_its_process_there(start: Start) -> None:
    worker = start(
        "import json, sys\nGPU = json.loads( sys.argv[-1] )\n"
        "def run(b):\n    return [json.dumps([GPU, sys.argv[1:-1]])]\n",
        arguments=("--model", "m"),
        environment={"CUDA_VISIBLE_DEVICES": "3"},
    )
    worker.ready()
    data, arguments = json.loads(worker.run(["a"]).rows)
    assert (data["gpu_index"], arguments) == (3, ["--model", "m"])


SHADOWS = [
    "worker",
    "frames",
    "loading",
    "agent",
    "host",
    "page",
    "rows",
    "script",
    "boot",
    "context",
    "tables",
    "process",
]


def test_a_scripts_own_modules_are_never_shadowed_by_ours(start: Start, tmp_path: Path) -> None:
    files = {f"{name}.py": f"WHOSE = 'mine {name}'\n" for name in SHADOWS}
    files["score.py"] = (
        f"import {', '.join(SHADOWS)}\ndef run(b):\n    return [m.WHOSE for m in ({', '.join(SHADOWS)})]\n"
    )
    worker = start(folder=code_of(tmp_path, files))
    worker.ready()
    assert worker.run(["a"]).rows.decode().splitlines() == [f"mine {name}" for name in SHADOWS]


@pytest.mark.parametrize(
    ("entry", "files"),
    [
        ("deep/er/score.py", {"deep/er/score.py": "import beside\n" + ECHO, "beside.py": ""}),
        ("pack.main", {"pack/__init__.py": "", "pack/o.py": "", "pack/main.py": "from . import o\n" + ECHO}),
        ("main", {"main.py": ECHO}),
        ("odd name-1.py", {"odd name-1.py": ECHO}),
        ("json.py", {"json.py": "import sys\nassert sys.modules['json'].__file__ != __file__\n" + ECHO}),
    ],
)  # fmt: skip
def test_finds_files_and_dotted_modules(start: Start, tmp_path: Path, entry: str, files: dict[str, str]) -> None:
    worker = start(folder=code_of(tmp_path, files), entry_script=entry)
    worker.ready()
    assert worker.run(["a"]).rows == b"/data/a\n"


@pytest.mark.parametrize(
    ("entry", "script", "words"),
    [
        ("absent.py", ECHO, ["'absent.py'", "not in the code folder", "'score.py'"]),
        ("absent.module", ECHO, ["'absent.module'", "not a module in the code folder"]),
        ("score.py", "x = 1\n", ["does not define a run()", "Define run(mini_batch)"]),
        ("score.py", "def Run(b):\n    return b\n", ["does not define a run()", "it has Run"]),
        ("score.py", "run = 3\n", ["run is of type int"]),
        ("score.py", "init = 3\n" + ECHO, ["init is of type int"]),
        ("score.py", "def run():\n    return []\n", ["takes no argument", "run(mini_batch)"]),
        ("score.py", "def run(a, b, c):\n    return []\n", ["takes 3 arguments"]),
        ("score.py", "def run(a, *, b):\n    return []\n", ["takes 2 arguments"]),
        ("score.py", "async def run(b):\n    return b\n", ["run()", "async def", "asyncio.run()"]),
        ("score.py", "async def run(b):\n    yield b\n", ["run()", "async def"]),
        ("score.py", "async def init():\n    1 / 0\n" + ECHO, ["init()", "async def"]),
        ("score.py", "def run(b:\n", ["could not be loaded", "SyntaxError", "line 1"]),
        ("score.py", "import no_such_thing\n", ["ModuleNotFoundError", "no_such_thing", "--python", "score.py, line"]),
        ("score.py", "import sys\nsys.exit('no model')\n", ["SystemExit", "sys.exit(no model)"]),
        ("score.py", ECHO + "def init():\n    1 / 0\n", ["init() of the entry script 'score.py' failed", "line 4"]),
        ("score.py", ECHO + "def init():\n    raise SystemExit(4)\n", ["init()", "sys.exit(4)"]),
        ("score.py", "import pathlib\npathlib.Path('/no/model').read_text()\n", ["'/no/model' (score.py, line 2)"]),
        ("score.py", ECHO + "def init():\n    raise KeyboardInterrupt\n", ["init()", "KeyboardInterrupt"]),
    ],
)  # fmt: skip
def test_a_script_that_cannot_serve_says_why_and_ends(
    start: Start, tmp_path: Path, entry: str, script: str, words: list[str]
) -> None:
    worker = start(folder=code_of(tmp_path, {"score.py": script}), entry_script=entry)
    frame = worker.frame()
    assert (frame.type, frame.cause) == (INIT_FAILED, "init_failed")
    assert [word for word in words if word not in frame.message] == [], frame.message
    assert "\n" not in frame.message
    assert worker.wait() == 190


PARSER = (
    ECHO
    + """
import argparse, sys

def init():
    parser = argparse.ArgumentParser()
    parser.add_argument("--k", required=True)
    parser.parse_args()
"""
)


@pytest.mark.parametrize(
    ("arguments", "said", "is_hinted"),
    [
        ([], "the following arguments are required: --k", False),
        (["--k", "1", "--error_threshold", "3"], "unrecognized arguments: --error_threshold 3", True),
    ],
)
def test_a_script_that_exits_says_what_it_has_written_to_stderr(
    start: Start, arguments: list[str], said: str, is_hinted: bool
) -> None:
    frame = start(PARSER, arguments=arguments).frame()
    last = f"The last line of stderr: score.py: error: {said}"
    assert f"sys.exit(2) was called (score.py, line 9). {last}" in frame.message
    assert ("parse_known_args()" in frame.message) == is_hinted
    detail = frame.side["detail"]
    assert detail.startswith("The end of its stderr:\nusage: score.py") and "argparse.py" not in detail


def test_a_module_beside_a_nested_script_is_told_how_to_be_imported(start: Start, tmp_path: Path) -> None:
    files = {"deep/in/score.py": "import helper\n" + ECHO, "deep/in/helper.py": "", "deep/other.py": ""}
    worker = start(folder=code_of(tmp_path, files), entry_script="deep/in/score.py")
    message = worker.frame().message
    assert "It is next to the script, in 'deep/in'" in message
    assert "import deep.in.helper" in message
    assert "Install it" not in message


def test_a_node_may_tell_how_libraries_get_onto_it(start: Start) -> None:
    worker = start("import no_such_thing\n" + ECHO, install_hint="ask the fleet's keeper")
    assert worker.frame().message.endswith("ask the fleet's keeper")


def test_main_guard_does_not_run(start: Start) -> None:
    worker = start(ECHO + "if __name__ == '__main__':\n    raise RuntimeError('started as a program')\n")
    worker.ready()


def test_classes_of_the_entry_script_can_be_pickled(start: Start) -> None:
    worker = start(
        "import pickle\nclass Point:\n    x = 3\ndef run(b):\n    return [pickle.loads(pickle.dumps(Point())).x]\n"
    )
    worker.ready()
    assert worker.run(["a"]).rows == b"3\n"


def test_the_script_is_the_module_of_its_file_s_name(start: Start, tmp_path: Path) -> None:
    """So that what it pickles can be loaded by other scripts, and a module that imports it gets the one that runs."""
    files = {
        "train.py": "import pickle, beside\nclass Model:\n    pass\nvalue = 0\n"
        "def init():\n    global value\n    value = 7\n"
        "def run(b):\n    return [pickle.dumps(Model(), 0).hex(), beside.value()]\n",
        "beside.py": "def value():\n    import train\n    return train.value\n",
    }
    worker = start(folder=code_of(tmp_path, files), entry_script="train.py")
    worker.ready()
    pickled, value = worker.run(["a"]).rows.decode().split()
    assert (b"ctrain\nModel\n" in bytes.fromhex(pickled), value) == (True, "7")


@pytest.mark.parametrize(
    ("entry", "more"),
    [
        ("sub/train.py", {}),
        ("odd-name.py", {}),
        ("train.py", {"train/__init__.py": ""}),
        ("json.py", {}),
        ("zipimport.py", {}),
        ("windrow_worker.py", {}),
    ],
)
def test_a_name_that_means_another_module_is_not_taken(
    start: Start, tmp_path: Path, entry: str, more: dict[str, str]
) -> None:
    script = "import json, zipimport\ndef run(b):\n    return [__name__, json.dumps(zipimport.__name__)]\n"
    worker = start(folder=code_of(tmp_path, {entry: script, **more}), entry_script=entry)
    worker.ready()
    name, other = worker.run(["a"]).rows.decode().split()
    assert (name.startswith("windrow_entry."), other) == (True, '"zipimport"')


def test_offers_the_entry_script_class_and_sends_logging_to_standard_output(start: Start) -> None:
    worker = start(
        "import logging\nfrom azureml_user.parallel_run import EntryScript\n"
        "logging.getLogger('mine').info('from the root')\nlogging.debug('hidden')\n"
        "def run(b):\n"
        "    e = EntryScript()\n    assert e is EntryScript()\n"
        "    e.logger.info('scored %s', b[0])\n    e.logger.debug('hidden')\n"
        "    return [e.log_dir, e.agent_name, e.output_dir, e.working_dir]\n"
    )
    worker.ready()
    rows = worker.run(["a"]).rows.decode().splitlines()
    assert rows == [str(worker.logs), "process007", str(worker.folder / "output"), str(worker.code)]
    log = (worker.logs / "process007.log.txt").read_text()
    assert log.endswith("|scored /data/a\n")
    assert "|INFO|" in log
    assert "hidden" not in log + worker.output()
    assert worker.output().endswith("|from the root\n")


def test_a_real_azureml_user_package_wins(start: Start, tmp_path: Path) -> None:
    files = {
        "azureml_user/__init__.py": "",
        "azureml_user/parallel_run.py": "class EntryScript:\n    agent_name = 'the real one'\n",
        "score.py": "from azureml_user.parallel_run import EntryScript\n"
        "def run(b):\n    return [EntryScript().agent_name]\n",
    }
    worker = start(folder=code_of(tmp_path, files))
    worker.ready()
    assert worker.run(["a"]).rows == b"the real one\n"


def test_a_failing_start_is_reported_and_has_an_exit_code_of_its_own(start: Start) -> None:
    worker = start("def init():\n    raise ValueError('no model ' + 'x' * 100000)\n" + ECHO)
    frame = worker.frame()
    assert (frame.type, frame.cause) == (INIT_FAILED, "init_failed")
    assert len(frame.message.encode()) <= 4096
    assert len(str(frame.side["detail"]).encode()) <= 65536
    assert "windrow_worker" not in frame.side["detail"]
    assert worker.wait() == 190
