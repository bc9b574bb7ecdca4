"""What scripts log by `azureml.core.Run`, where the real package is not installed: a row for each call.

Reference: docs/reference/azure-ml/parallel-job.md#metrics.
"""

from __future__ import annotations

import csv
import json
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_worker_script import ECHO, code_of
from worker_driver import BOOT, INIT_FAILED, Start, Worker

if TYPE_CHECKING:
    from typing import Any

GET = "from azureml.core import Run\nrun_ = Run.get_context()\n"


def begin(start: Start, tmp_path: Path, script: str | None, **more: Any) -> tuple[Worker, Path]:
    """A worker, and its file."""
    path = tmp_path / "process007.csv"
    worker = start(script, metrics_path=str(path), **more)
    worker.ready()
    return worker, path


def rows_of(path: Path) -> list[tuple[str, Any, str, str]]:
    """Name, value, kind and run of each row."""
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["Utc Time", "Name", "Value", "Kind", "Run"]
    assert all(len(row[0]) == len("2026-01-01T00:00:00.000000Z") for row in rows)
    return [(name, json.loads(value), kind, run) for _, name, value, kind, run in rows]


def test_values_become_rows(start: Start, tmp_path: Path) -> None:
    script = GET + (
        "import azureml.core.run\n"
        "class Number:\n    def item(self): return 2.5\n"
        "def run(b):\n"
        "    assert run_ is Run.get_context(allow_offline=True) is azureml.core.run.Run.get_context()\n"
        "    run_.log('loss', 0.1, description='of the epoch', step=3)\n"
        "    run_.log('a, \"b\"', 'text\\nof two lines')\n"
        "    run_.log('number', Number())\n"
        "    run_.log_list('ids', [1, None, True])\n"
        "    run_.log_row('citrus', fruit='lemon', size=7)\n"
        "    run_.log_table('both', {'x': [1, 2], 'y': ['é', 'z']})\n"
        "    run_.log_table('one', {'x': 1})\n"
        "    run_.parent.log('share', 0.5)\n"
        "    run_.flush(); run_.complete()\n"
        "    with run_ as same:\n        assert same is run_ and run_.get_tags() == run_.tags == {}\n"
        "    return [run_.id, run_.parent.id, run_.name, run_.experiment.name]\n"
    )
    environment = {"PYTHONWARNINGS": "error", "AZUREML_ARM_PROJECT_NAME": "iris"}
    worker, path = begin(start, tmp_path, script, environment=environment)
    assert worker.run(["a"]).rows == b"job-1/score\njob-1\nscore\niris\n"
    assert rows_of(path) == [
        ("loss", 0.1, "value", "step"),
        ('a, "b"', "text\nof two lines", "value", "step"),
        ("number", 2.5, "value", "step"),
        ("ids", [1, None, True], "list", "step"),
        ("citrus", {"fruit": "lemon", "size": 7}, "row", "step"),
        ("both", {"x": [1, 2], "y": ["é", "z"]}, "table", "step"),
        ("one", {"x": [1]}, "table", "step"),
        ("share", 0.5, "value", "job"),
    ]
    assert path.read_bytes().count(b"\n") == 9
    assert worker.errors() == ""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_that_the_script_starts_log_into_the_same_file(start: Start, tmp_path: Path, method: str) -> None:
    script = GET + (
        "import multiprocessing, subprocess, sys\n"
        "def tell(n):\n"
        "    for k in range(200):\n        Run.get_context().log('n%d' % n, k)\n"
        "def run(b):\n"
        f"    with multiprocessing.get_context({method!r}).Pool(4) as pool:\n        pool.map(tell, range(4), 1)\n"
        "    alone = 'from azureml.core import Run; Run.get_context().log(\"p\", 1)'\n"
        "    subprocess.check_call([sys.executable, '-c', alone])\n"
        "    return b\n"
    )
    worker, path = begin(start, tmp_path, script)
    worker.run(["a"])
    rows = rows_of(path)
    assert [value for name, value, _, _ in rows if name == "n2"] == list(range(200))
    assert (len(rows), rows[-1][0]) == (801, "p")


def test_a_command_logs_and_its_own_path_stays(start: Start, tmp_path: Path) -> None:
    files = {
        "train.py": "import beside\n" + GET + "run_.log('loss', beside.LOSS)\nprint(run_.id)\n",
        "elsewhere/beside.py": "LOSS = 0.25\n",
    }
    folder = code_of(tmp_path, files)
    more = {"PYTHONPATH": str(folder / "code" / "elsewhere")}
    worker, path = begin(
        start, tmp_path, None, folder=folder, command="python train.py", entry_script="", environment=more
    )
    worker.run(["a"])
    assert rows_of(path) == [("loss", 0.25, "value", "step")]
    assert worker.output() == "job-1/score\n"


REAL = {
    "azureml/__init__.py": "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n",
    "azureml/core/__init__.py": "from azureml.core.run import Run\nWorkspace = 'the real one'\n",
    "azureml/core/run.py": (
        "import os\n"
        "class Run:\n"
        "    @classmethod\n"
        "    def get_context(cls, allow_offline=True, used_for_context_manager=False, **more):\n"
        "        if 'AZURES_OWN' in os.environ:\n            return 'a run of Azure ML'\n"
        "        if not allow_offline:\n            raise RuntimeError('no run')\n"
        "        return _OfflineRun()\n"
        "class _OfflineRun(Run):\n    pass\n"
    ),
    "sitecustomize.py": "print('the site says')\n",
}


@pytest.mark.parametrize("command", ["", "python score.py"])
def test_an_installed_package_gives_the_run_of_the_step_in_place_of_its_offline_run(
    start: Start, tmp_path: Path, command: str
) -> None:
    for name, text in REAL.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    alone = "from azureml.core import Run, Workspace; Run.get_context(allow_offline=False).log('p', 1)"
    script = (
        "import os, subprocess, sys\n"
        f"sys.path.append({str(tmp_path / 'site')!r})\n"
        "from azureml.core import Run, Workspace\n"
        "run_ = Run.get_context()\n"
        "run_.log('loss', 0.5)\n"
        "run_.parent.log('all', 1)\n"
        "print(Workspace, run_.id, run_.parent.id)\n"
        f"paths = os.pathsep.join([os.environ['PYTHONPATH'], {str(tmp_path / 'site')!r}])\n"
        f"subprocess.check_call([sys.executable, '-c', {alone!r}], env={{**os.environ, 'PYTHONPATH': paths}})\n"
        "os.environ['AZURES_OWN'] = '1'\n"
        "print(Run.get_context())\n"
    ) + ECHO
    worker, path = begin(start, tmp_path, None, folder=code_of(tmp_path, {"score.py": script}), command=command)
    worker.run(["a"])
    assert sorted(worker.output().splitlines()) == [
        "a run of Azure ML", "the real one job-1/score job-1", "the site says"
    ]  # fmt: skip
    assert rows_of(path) == [("loss", 0.5, "value", "step"), ("all", 1, "value", "job"), ("p", 1, "value", "step")]


@pytest.mark.parametrize("command", ["", "python score.py"])
def test_the_real_package_wins(start: Start, tmp_path: Path, command: str) -> None:
    real = {
        "azureml/__init__.py": "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n",
        "azureml/core/__init__.py": "from azureml.core.run import Run\nWorkspace = 'the real one'\n",
        "azureml/core/run.py": "class Run:\n    name = 'the real one'\n",
    }
    for name, text in real.items():
        (tmp_path / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "site" / name).write_text(text)
    script = "from azureml.core import Run, Workspace\nprint(Run.name, Workspace)\n" + ECHO
    settings = {"command": command, "environment": {"PYTHONPATH": str(tmp_path / "site")}}
    worker, path = begin(start, tmp_path, None, folder=code_of(tmp_path, {"score.py": script}), **settings)
    worker.run(["a"])
    assert worker.output() == "the real one the real one\n"
    assert not path.exists()


def test_parts_of_the_real_package_are_there_without_its_core(start: Start, tmp_path: Path) -> None:
    files = {
        "azureml/__init__.py": "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n",
        "azureml/tables/__init__.py": "",
        "score.py": "import azureml.tables\n" + GET + "run_.log('loss', 1)\n" + ECHO,
    }
    _, path = begin(start, tmp_path, None, folder=code_of(tmp_path, files))
    assert rows_of(path) == [("loss", 1, "value", "step")]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from azureml.core import Run, ScriptRun", "azureml.core.ScriptRun"),
        ("from azureml.core.run import _OfflineRun", "azureml.core.run._OfflineRun"),
        ("from azureml.core.model import Dataset", "azureml.core.model.Dataset"),
        ("import azureml.core.authentication", "azureml.core.authentication"),
        ("from azureml.core.workspace import Dataset, _x", "azureml.core.workspace._x"),
    ],
)
def test_an_import_of_anything_else_fails_as_without_it(start: Start, line: str, name: str) -> None:
    worker = start(f"import azureml.core\nassert not hasattr(azureml.core, '__wrapped__')\n{line}\n{ECHO}")
    frame = worker.frame()
    assert frame.type == INIT_FAILED
    assert f"ModuleNotFoundError: No module named 'azureml' that has {name}: the package azureml-core" in frame.message
    assert "Install it for " in frame.message
    optional = f"import azureml.core\ntry:\n    {line}\nexcept ImportError:\n    pass\n{ECHO}"
    start(optional).ready()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("run_.upload_file('a', 'b')", " Run.upload_file is not there in Windrow: the files that a step keeps"),
        ("run_.input_datasets['a']", "The step has no input 'a'. It has: none"),
        (
            "from azureml.core import Datastore; Datastore.get(None, 'd')",
            "Datastore.get is not there in a script of Windrow: give the data to the step as an input",
        ),
        ("from azureml.core.dataset import Dataset; Dataset.Tabular", "Dataset.Tabular is not there in a script"),
        (
            "from azureml.core import Workspace; Workspace('a')",
            "Workspace is not there in a script of Windrow",
        ),
        ("run_.experiment.workspace.datasets", "Workspace.datasets is not there in a script of Windrow: give the data"),
        ("run_.experiment.workspace.get_default_keyvault()", "secrets are not kept. Read an environment variable"),
        ("run_.experiment.workspace.compute_targets", "a script has no workspace. Give the step its data and models"),
        ("run_.child_run('a')", "a step is one run"),
        ("run_.get_metrics()", "windrow job show JOB --metrics"),
        ("run_.number", "has no number in Windrow"),
        ("run_.log('a', [1])", "TypeError: run.log('a') takes one number or text, not a list. Use run.log_list"),
        ("run_.log('a\\nb', 1)", "ValueError: The name of a metric is one line"),
        ("run_.log_row('a')", "needs columns"),
        ("run_.log_table('a', {'x': [1], 'y': []})", "of one length. Their lengths: x: 1, y: 0"),
        ("run_.log_list('a', range(99999))", "and 65,536 are the most. Log it in several calls"),
        ("Run(None, 'other')", "Run.get_context() gives its own"),
        ("from azureml.core import Model; Model.get_model_path('m')", "There is no model 'm' for this step. Register"),
        (
            "from azureml.core import Model; Model.register(None, 'm', 'm')",
            "write the model into an output of the step",
        ),
        (
            "from azureml.core import Model; Model.list(None)",
            "Model.list is not there in Windrow: there is no workspace",
        ),
        ("from azureml.core import Model; Model(run_.experiment.workspace, 'm')", "There is no model 'm'"),
        ("from azureml.core import Model; Model(None, tags=['a'])", "by their name alone: Model(workspace, name)"),
    ],
)
def test_what_cannot_be_carried_out_says_what_to_do_instead(start: Start, call: str, said: str) -> None:
    worker = start(f"{GET}def run(b):\n    {call}\n")
    worker.ready()
    worker.send(1, ["a"])
    assert said in worker.failed().message


def test_a_script_downloads_models_with_the_workspace_of_its_run(start: Start, tmp_path: Path) -> None:
    for place in ("azureml-models/m/1/net/weights.txt", "azureml-models/m/2/net/weights.txt", "beside.txt"):
        (tmp_path / "root" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / place).write_text(place)
    script = (
        "import os\n"
        "from azureml.core import Model, Run\n"
        "def run(b):\n"
        "    workspace = Run.get_context().experiment.workspace\n"
        f"    folder = {str(tmp_path / 'got')!r}\n"
        "    newest = Model(workspace, name='m')\n"
        "    path = newest.download(target_dir=folder)\n"
        "    first = Model(workspace, id='m:1').download(os.path.join(folder, 'first'))\n"
        "    rows = [newest.version, newest.id, os.path.relpath(path, folder)]\n"
        "    rows += [open(os.path.join(one, 'weights.txt')).read() for one in (path, first)]\n"
        "    file = Model(workspace, 'beside.txt')\n"
        "    for attempt in (1, 2):\n"
        "        got = file.download(folder, exist_ok=True)\n"
        "    try:\n"
        "        file.download(folder)\n"
        "    except FileExistsError as error:\n"
        "        rows.append('exist_ok=True' in str(error))\n"
        "    try:\n"
        "        newest.register()\n"
        "    except AttributeError as error:\n"
        "        rows.append('windrow model create' in str(error))\n"
        "    return [[*rows, file.version, open(got).read()]]\n"
    )
    worker = start(script, environment={"AML_APP_ROOT": str(tmp_path / "root")})
    worker.ready()
    expected = [2, "m:2", "net", "azureml-models/m/2/net/weights.txt", "azureml-models/m/1/net/weights.txt"]
    assert worker.run(["a"]).rows.decode() == f"{[*expected, True, True, None, 'beside.txt']}\n"


def test_a_script_finds_models_by_name(start: Start, tmp_path: Path) -> None:
    for place in ("azureml-models/m/1/first.txt", "azureml-models/m/10/last.txt", "beside.txt"):
        (tmp_path / "root" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / place).write_text(place)
    find = "Model.get_model_path"
    script = (
        "from azureml.core.model import Model\n"
        f"def run(b):\n    found = {find}('m'), {find}('m', version=1), {find}('beside.txt')\n"
        "    return [open(path).read() for path in found]\n"
    )
    worker = start(script, environment={"AML_APP_ROOT": str(tmp_path / "root")})
    worker.ready()
    assert worker.run(["a"]).rows == b"azureml-models/m/10/last.txt\nazureml-models/m/1/first.txt\nbeside.txt\n"


def test_a_script_finds_models_of_a_master_elsewhere(start: Start, tmp_path: Path) -> None:
    (tmp_path / "net.txt").write_text("weights")
    places = {"net": {"1": "/nowhere/net.txt", "9": str(tmp_path / "net.txt"), "beta": "/nowhere"}}
    script = (
        "from azureml.core.model import Model\n"
        "def run(b):\n    found = open(Model.get_model_path('net')).read()\n"
        "    try:\n        Model.get_model_path('net', version=1)\n"
        "    except FileNotFoundError as error:\n        return [found, str(error)]\n"
    )
    worker = start(script, environment={"WINDROW_MODELS": json.dumps(places)})
    worker.ready()
    found, said = worker.run(["a", "b"]).rows.decode().splitlines()
    assert found == "weights" and said.startswith("The model net:1 is at /nowhere/net.txt, which is not on this node.")


def test_a_script_reads_its_inputs_by_name(start: Start, tmp_path: Path) -> None:
    files = {
        "files/a.txt": "a",
        "files/below/b.txt": "b",
        "rows/1.csv": "x,y\n1,2\n",
        "rows/2.csv": "x,y\n3,4\n",
        "own/MLTable": '{"paths": [{"pattern": "../rows/*.csv"}], '
        '"transformations": [{"read_delimited": {"header": "all_files_same_headers"}}, {"keep_columns": "y"}]}',
        "yaml/MLTable": "paths:\n- folder: ../rows\ntransformations:\n- read_delimited\n- skip: 1\n",
        "list/MLTable": '{"paths": [{"file": "../files/a.txt"}], "transformations": []}',
        "sampled/MLTable": '{"paths": [{"folder": "../rows"}], "transformations": [{"take_random_sample": {}}]}',
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    inputs = {f"AZURE_ML_INPUT_{name}": str(tmp_path / name) for name in ("files", "rows", "own", "yaml", "list")}
    script = f"""{GET}
import os
def names(paths): return [os.path.relpath(path, {str(tmp_path)!r}) for path in paths]

def run(mini_batch):
    data = run_.input_datasets
    assert sorted(data) == ["files", "list", "own", "rows", "yaml"] and "files" in data and data.get("no") is None
    files = data["files"]
    assert isinstance(files, str) and os.listdir(files) == os.listdir({str(tmp_path / "files")!r})
    assert names(files.to_path()) == ["files/a.txt", "files/below/b.txt"], files.to_path()
    with files.mount() as mounted:
        assert mounted.mount_point == files
    assert sorted(os.path.basename(path) for path in files.download("got")) == ["a.txt", "b.txt"]
    assert open("got/below/b.txt").read() == "b"
    assert names(data["list"].to_path()) == ["files/a.txt"]
    assert data["rows"].to_pandas_dataframe().to_dict("list") == {{"x": [1, 3], "y": [2, 4]}}
    assert data["own"].to_pandas_dataframe().to_dict("list") == {{"y": [2, 4]}}
    try:
        read = data["yaml"].to_pandas_dataframe().to_dict("list")
    except RuntimeError as error:
        # The script's Python need not have PyYAML.
        assert {find_spec("yaml") is None} and "PyYAML" in str(error), error
    else:
        assert read == {{"x": [3], "y": [4]}}
    assert run_.output_datasets["made"] == "/made"
    said = []
    os.environ["AZURE_ML_INPUT_sampled"] = {str(tmp_path / "sampled")!r}
    os.environ["AZURE_ML_INPUT_far"] = "s3://bucket/far"
    for name, call in (("sampled", "to_path"), ("files", "to_pandas_dataframe"), ("far", "to_path")):
        try:
            getattr(run_.input_datasets[name], call)()
        except RuntimeError as error:
            said.append(str(error))
    return said
"""
    worker = start(script, environment={**inputs, "AZURE_ML_OUTPUT_made": "/made"})
    worker.ready()
    sampled, plain, far = worker.run(["a", "b", "c"]).rows.decode().splitlines()
    assert sampled.startswith("take_random_sample of the dataset 'sampled' is done only for mini-batches.")
    assert "its files have the suffixes .txt; to_pandas_dataframe() reads those of one kind: .csv" in plain
    assert far.startswith("The input 'far' is in a store, at s3://bucket/far, and the script gets its address")


def test_an_import_of_windrow_is_told_to_be_for_what_submits_jobs(start: Start) -> None:
    script = f"import sys\nsys.modules['windrow'] = None\nfrom windrow.ml.v1.core import Run\n{ECHO}"
    message = start(script).frame().message
    assert (
        "It is for what submits jobs: leave it out of the script." in message and "azureml.core import Run" in message
    )
    assert "Install it" not in message


def test_what_is_not_kept_is_told_once(start: Start, tmp_path: Path) -> None:
    calls = "run_.log_image('a', plot=1); run_.log_confusion_matrix('a', {}); run_.tag('a'); run_.set_tags({'b': 1})"
    worker, path = begin(start, tmp_path, f"{GET}def run(b):\n    for _ in b:\n        {calls}\n    return b\n")
    worker.run(["a", "b"])
    images, matrix, tags = worker.errors().splitlines()
    assert images == (
        "windrow: run.log_image keeps no images. Write it into an output of the step, as a file: plot.savefig(...)."
    )
    assert "log_confusion_matrix keeps nothing" in matrix
    assert "a step has no tags, so 'a' is not kept" in tags
    assert not path.exists()


def test_a_row_after_one_that_was_cut_off_begins_its_own_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "process007.csv").write_text("Utc Time,Name,Value,Kind,Run\n2026-01-01T00:00")
    _, path = begin(start, tmp_path, GET + "run_.log('loss', 1)\n" + ECHO)
    _, cut, row = path.read_text().splitlines()
    assert cut == "2026-01-01T00:00"
    assert row.endswith(",loss,1,value,step")


def test_a_file_that_cannot_be_written_is_told_and_fails_nothing(start: Start, tmp_path: Path) -> None:
    worker = start(GET + "run_.log('loss', 1)\nrun_.log('loss', 2)\n" + ECHO, metrics_path=str(tmp_path / "no" / "f"))
    worker.ready()
    (line,) = worker.errors().splitlines()
    assert "windrow: the metric 'loss' could not be kept, as others may not: " in line
    worker = start(GET + "run_.log('loss', 1)\n" + ECHO)
    worker.ready()
    assert "windrow: what run.log is given is not kept" in worker.errors()


def test_agent_and_worker_agree_on_the_longest_row() -> None:
    offered = (BOOT.parent / "offered" / "azureml" / "core" / "run.py").read_text()
    agent = (BOOT.parents[2] / "agent" / "windrow_agent" / "workers" / "capture.py").read_text()
    assert "\nROW_BYTES_MAX = 64 << 10\n" in offered
    assert "\n_ROW_BYTES_MAX = 64 << 10\n" in agent
