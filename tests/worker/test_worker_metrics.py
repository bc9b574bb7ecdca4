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
        "    return [run_.id, run_.parent.id, run_.get_status(), run_.experiment.name]\n"
    )
    environment = {"PYTHONWARNINGS": "error", "AZUREML_ARM_PROJECT_NAME": "iris"}
    worker, path = begin(start, tmp_path, script, environment=environment)
    assert worker.run(["a"]).rows == b"job-1/score\njob-1\nRunning\niris\n"
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
        ("from azureml.core import Run, get_run", "azureml.core.get_run"),
        ("from azureml.core.run import _x", "azureml.core.run._x"),
        ("import azureml.core.nothing", "azureml.core.nothing"),
        ("import azureml.data.nothing", "azureml.data.nothing"),
        ("from azureml.exceptions import nothing", "azureml.exceptions.nothing"),
    ],
)
def test_an_import_of_what_the_package_has_not_fails_as_without_it(start: Start, line: str, name: str) -> None:
    worker = start(f"import azureml.core\nassert not hasattr(azureml.core, '__wrapped__')\n{line}\n{ECHO}")
    frame = worker.frame()
    assert frame.type == INIT_FAILED
    assert f"ModuleNotFoundError: No module named 'azureml' that has {name}: the package azureml-core" in frame.message
    assert "Install it for " in frame.message
    optional = f"import azureml.core\ntry:\n    {line}\nexcept ImportError:\n    pass\n{ECHO}"
    start(optional).ready()


IMPORTED = """\
import azureml.data
import azureml.exceptions
import azureml.core.webservice.aks
from azureml.exceptions import ComputeTargetException, UserErrorException
import azureml.core
from azureml.core import ComputeTarget, Dataset, Datastore, Environment, Experiment, Keyvault, Model, Run, Workspace
from azureml.core.authentication import AzureCliAuthentication, InteractiveLoginAuthentication, MsiAuthentication
from azureml.core.authentication import ServicePrincipalAuthentication
from azureml.core.compute import AmlCompute, ComputeTarget as Same
from azureml.core.compute_target import ComputeTargetException as AlsoSame
from azureml.core.conda_dependencies import CondaDependencies
from azureml.core.dataset import Dataset as D
from azureml.core.datastore import Datastore as S
from azureml.core.environment import DEFAULT_CPU_IMAGE, Environment as E
from azureml.core.model import Dataset as M
from azureml.core.run import Run as R, _OfflineRun, _SubmittedRun
from azureml.core.runconfig import DEFAULT_CPU_IMAGE, RunConfiguration
from azureml.core.webservice import AksWebservice, Webservice
from azureml.core.workspace import Workspace as W
from azureml.data import FileDataset, OutputFileDatasetConfig, TabularDataset
from azureml.data.azure_storage_datastore import AzureBlobDatastore
from azureml.data.data_reference import DataReference
from azureml.data.datapath import DataPath
from azureml.data.dataset_factory import DataType

assert (Dataset, Datastore, Run, Workspace) == (D, S, R, W) and M is D and E is Environment
assert ComputeTarget is Same and ComputeTargetException is AlsoSame
assert issubclass(UserErrorException, azureml.exceptions.AzureMLException)
assert "windrow" in azureml.core.VERSION
run_ = Run.get_context()
assert not isinstance(run_, _OfflineRun) and isinstance(run_, _SubmittedRun)
assert not isinstance(run_.experiment.workspace, AmlCompute)
signed_in = Workspace.from_config(auth=ServicePrincipalAuthentication("tenant", service_principal_id="a"))
assert signed_in.name == run_.experiment.workspace.name == Workspace.get("w", auth=MsiAuthentication()).name

def run(b):
    said = []
    for call in (
        lambda: AmlCompute.provisioning_configuration(vm_size="x"),
        lambda: CondaDependencies.create(pip_packages=["six"]),
        lambda: Experiment(signed_in, "e"),
        lambda: InteractiveLoginAuthentication().get_authentication_header(),
        lambda: DataType.to_float(),
        lambda: OutputFileDatasetConfig("a"),
        lambda: Webservice(signed_in, "a"),
        lambda: signed_in.get_default_keyvault(),
    ):
        try:
            call()
        except (AttributeError, RuntimeError) as error:
            said.append(str(error))
    return said
"""


def test_an_import_of_names_of_the_package_never_fails_and_a_use_says_what_to_do(start: Start) -> None:
    worker = start(IMPORTED)
    worker.ready()
    said = worker.run(list("abcdefgh")).rows.decode().splitlines()
    assert [line.partition(" is not there in a script of Windrow: ")[0] for line in said] == [
        "AmlCompute.provisioning_configuration",
        "CondaDependencies.create",
        "Experiment",
        "InteractiveLoginAuthentication.get_authentication_header",
        "DataType.to_float",
        "OutputFileDatasetConfig",
        "Webservice",
        "Workspace.get_default_keyvault",
    ]
    assert said[3].endswith("there is nothing to sign in to") and "--pass-env NAME" in said[7]
    # Whichever of the packages is imported first.
    for line in ("import azureml.exceptions", "from azureml.data import FileDataset", "import azureml.data.datapath"):
        start(f"{line}\n{ECHO}").ready()


OF_OTHER_PACKAGES = """\
from azureml._restclient.models.run_type_v2 import RunTypeV2
from azureml.contrib.pipeline.steps import ParallelRunStep
from azureml.exceptions import AzureMLException
from azureml.pipeline.core import Pipeline, PipelineParameter
from azureml.pipeline.core._restclients.aeva.models.error_response import ErrorResponseException
from azureml.telemetry import set_diagnostics_collection
from azureml.train.hyperdrive import HyperDriveConfig, choice
from azureml.train.hyperdrive.parameter_expressions import normal
import azureml.widgets

assert issubclass(ErrorResponseException, AzureMLException)

def run(b):
    set_diagnostics_collection(send_diagnostics=False)
    said = []
    for call in (
        lambda: RunTypeV2(traits=["a"]),
        lambda: Pipeline(None, steps=[]),
        lambda: HyperDriveConfig(policy=None),
        lambda: choice(0.1, 1),
        lambda: normal(0, 1),
        lambda: azureml.widgets.RunDetails(None).show(),
    ):
        try:
            call()
        except RuntimeError as error:
            said.append(str(error))
    return said
"""


def test_imports_from_the_vendor_s_other_packages_do_not_fail_either(start: Start) -> None:
    worker = start(OF_OTHER_PACKAGES)
    worker.ready()
    said = worker.run(list("abcdef")).rows.decode().splitlines()
    assert [line.partition(" is not there in a script of Windrow: ")[0] for line in said] == [
        "RunTypeV2",
        "Pipeline",
        "HyperDriveConfig",
        "azureml.train.hyperdrive.choice",
        "azureml.train.hyperdrive.parameter_expressions.normal",
        "RunDetails",
    ]
    assert "Do this in the notebook" in said[1] and "does not search" in said[2] and "does not search" in said[3]
    # What libraries look for, to do without it, is not there.
    start(f"import azureml.core\ntry:\n    import azureml._logging\nexcept ImportError:\n    pass\n{ECHO}").ready()


TAGS = (
    GET
    + """\
def run(b):
    run_.log("loss", 0.5)
    run_.log("loss", 0.25)
    run_.log_row("fruit", kind="lemon", size=7)
    run_.log_table("fruit", {"kind": ["lime", "fig"]})
    run_.parent.log("share", 1)
    run_.tag("kind", "first")
    run_.set_tags({"kind": "last, 'one'", "bare": None, "number": 3})
    run_.tag("gone", "x")
    run_.remove_tags(["gone", "never"])
    run_.add_properties({"of": "a"})
    run_.add_properties({"of": "b", "by": 1})
    run_.parent.tag("of the job", "yes")
    assert run_.get_tags() == run_.tags == {"kind": "last, 'one'", "bare": None, "number": "3"}, run_.tags
    assert run_.get_properties() == run_.properties == {"of": "a", "by": "1"}
    assert run_.parent.get_tags() == {"of the job": "yes"} and run_.parent.properties == {}
    fruit = {"kind": ["lemon", "lime", "fig"], "size": [7, None, None]}
    assert run_.get_metrics() == {"loss": [0.5, 0.25], "fruit": fruit}, run_.get_metrics()
    assert run_.get_metrics("loss") == {"loss": [0.5, 0.25]} and run_.get_metrics(name="no") == {}
    assert run_.parent.get_metrics() == {"share": 1}
    assert run_.get_metrics(recursive=True) == {run_.id: run_.get_metrics()}
    assert run_.get_portal_url() == run_.parent.get_portal_url() == ""
    try:
        run_.tag("two\\nlines")
    except ValueError as error:
        return [str(error)]
"""
)


def test_a_script_reads_back_its_metrics_and_tags(start: Start, tmp_path: Path) -> None:
    worker, path = begin(start, tmp_path, TAGS)
    said = worker.run(["a"]).rows.decode()
    assert said == "The name of a tag is one line of text, not 'two\\nlines'\n"
    kinds = [(name, value, kind, level) for name, value, kind, level in rows_of(path) if kind not in ("value", "row")]
    assert kinds[1:4] == [
        ("kind", "first", "tag", "step"),
        ("kind", "last, 'one'", "tag", "step"),
        ("bare", None, "tag", "step"),
    ]
    assert ("gone", None, "untag", "step") in kinds and ("of the job", "yes", "tag", "job") in kinds
    assert worker.errors() == ""


CHILDREN = (
    GET
    + """\
def run(b):
    run_.log("loss", 9)
    first = run_.child_run(name="fold 1")
    first.log("loss", 0.5)
    first.set_tags({"kind": "net"})
    first.add_properties({"of": "a"})
    assert first.get_status() == "Running" and first.id == run_.id + "/fold 1" and first.parent is run_
    first.complete()
    assert first.get_status() == first.status == "Completed" and run_.get_status() == "Running"
    assert first.get_metrics() == {"loss": 0.5} and first.tags == {"kind": "net"} and first.properties == {"of": "a"}
    try:
        with run_.child_run("fold 2") as second:
            second.child_run("part").log("loss", 1)
            raise KeyError("no data")
    except KeyError:
        assert second.status == "Failed" and second.properties == {"error": "'no data'"}
    a, b = run_.create_children(tag_key="size", tag_values=["1", "2"])
    assert a.id != b.id and b.get_tags() == {"size": "2"}
    assert len({one.name for one in run_.create_children(3)} - {a.name, b.name}) == 3
    return [str(run_.get_metrics())]
"""
)


def test_a_child_run_is_a_part_of_the_run_with_its_name_before_what_it_keeps(start: Start, tmp_path: Path) -> None:
    worker, path = begin(start, tmp_path, CHILDREN)
    said = worker.run(["a"]).rows.decode()
    assert said == "{'loss': 9, 'fold 1/loss': 0.5, 'fold 2/part/loss': 1}\n"
    assert ("fold 1/kind", "net", "tag", "step") in rows_of(path)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("run_.input_datasets['a']", "The step has no input 'a'. It has: none"),
        ("from azureml.core import Datastore; Datastore.get(None, 'd')", "This script runs outside of a job"),
        ("from azureml.core import Dataset; Dataset.get_by_name(None, 'd')", "The data asset 'd' cannot be looked up"),
        ("from azureml.core import Dataset; Dataset.get_all(None)", "Dataset.get_all is not there in a script of Wind"),
        (
            "from azureml.core import Dataset; Dataset.File.from_files('a').register(None, 'a')",
            "Dataset.register is not there in a script of Windrow: a script registers no data",
        ),
        (
            "from azureml.core import Dataset; Dataset.File.from_files('s3://b/a').to_path()",
            "s3://b/a is in a store, which scripts do not reach: give the data to the step as an input",
        ),
        (
            "from azureml.core import Dataset; Dataset.Tabular.from_sql_query('a')",
            "from_sql_query is not there in a script of Windrow: what the step writes goes into its outputs",
        ),
        ("from azureml.core import Workspace; Workspace.create('a')", "Workspace.create is not there in a script of"),
        ("run_.experiment.workspace.get_default_keyvault()", "secrets are not kept. Read an environment variable"),
        ("run_.experiment.workspace.compute_targets", "a script has no workspace but the one of its run. Do this in"),
        ("run_.submit_child(None)", "run.child_run(name) is a part of the run"),
        ("run_.child_run('a/')", "neither begins nor ends with /"),
        ("run_.parent.get_metrics(recursive=True)", "A script gets the metrics of its own step and of the job"),
        ("run_.number", "has no number in Windrow"),
        ("run_.log('a', [1])", "TypeError: run.log('a') takes one number or text, not a list. Use run.log_list"),
        ("run_.log('a\\nb', 1)", "ValueError: The name of a metric is one line"),
        ("run_.log_row('a')", "needs columns"),
        ("run_.log_table('a', {'x': [1], 'y': []})", "of one length. Their lengths: x: 1, y: 0"),
        ("run_.log_list('a', range(99999))", "and 65,536 are the most. Log it in several calls"),
        ("Run(None, 'other')", "Run.get_context() gives its own"),
        ("from azureml.core import Model; Model.get_model_path('m')", "There is no model 'm' for this step. Register"),
        ("from azureml.core import Model; Model.register(None, 'm', 'm')", "Model m: there is no file at /"),
        ("run_.register_model('m', 'outputs/m')", "Model m: there is no file at /"),
        ("run_.upload_folder('a', 'none')", "run.upload_folder('a'): there is no file below /"),
        ("from azureml.core import Model; Model.list(None)", "NoAgent: This script runs outside of a job"),
        ("from azureml.core import Model; Model.deploy()", "Model.deploy is not there in Windrow: it offers"),
        ("from azureml.core import Model; Model(run_.experiment.workspace, 'm')", "There is no model 'm'"),
        ("from azureml.core import Model; Model(None, tags=['a'])", "by their name and tags: Model(workspace, name)"),
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
        "        newest.delete()\n"
        "    except AttributeError as error:\n"
        "        rows.append('it offers Model.register' in str(error))\n"
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
    calls = "run_.log_image('a', plot=1); run_.log_confusion_matrix('a', {})"
    worker, path = begin(start, tmp_path, f"{GET}def run(b):\n    for _ in b:\n        {calls}\n    return b\n")
    worker.run(["a", "b"])
    images, matrix = worker.errors().splitlines()
    assert images == (
        "windrow: run.log_image keeps no images. Write it into an output of the step, as a file: plot.savefig(...)."
    )
    assert "log_confusion_matrix keeps nothing" in matrix
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
