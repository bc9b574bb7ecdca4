"""What is published works where nothing else is installed, beside every protobuf that users have.

One wheel is built and installed into one clean environment for the whole module. The protobuf versions are laid
over it, each in a folder that stands first on the path, so that the big dependencies are installed once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
PACKAGES = ("windrow", "windrow_master", "windrow_agent", "windrow_worker")

pytestmark = pytest.mark.timeout(600)  # downloads, on slow lines too


def run(*command: str | Path, path: str | None = None, cwd: Path | None = None) -> str:
    """Standard output of a command that must succeed, in an environment that knows nothing of the checkout."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV"))}
    if path is not None:
        environment["PYTHONPATH"] = path
    result = subprocess.run(
        [str(part) for part in command],
        check=False,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert result.returncode == 0, f"{command}:\n{result.stdout}\n{result.stderr}"
    return result.stdout


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel that is built from it, as a release would be."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--installer", "uv", "--outdir", folder, ROOT)
    return {"sdist": next(folder.glob("*.tar.gz")), "wheel": next(folder.glob("*.whl"))}


@pytest.fixture(scope="module")
def clean_python(distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment in which only the wheel and what it depends on is installed."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder)
    python = folder / "bin/python"
    # uv brings what pip would, in a fraction of the time; pip then finds whether that is what the wheel asks for.
    run(UV, "pip", "install", "--quiet", "--python", python, "-r", ROOT / "pyproject.toml")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    run(*pip, "install", "--quiet", "--no-compile", distributions["wheel"])
    return python


def test_wheel_holds_every_source_file(distributions: dict[str, Path]) -> None:
    with zipfile.ZipFile(distributions["wheel"]) as wheel:
        names = set(wheel.namelist())
    for root in ("client/windrow", "master/windrow_master", "agent/windrow_agent", "worker/windrow_worker"):
        package = Path(root).name
        tracked = run("git", "ls-files", root, cwd=ROOT).split() if (ROOT / ".git").exists() else []
        missing = [
            name for name in tracked if package + name.removeprefix(root) not in names and (ROOT / name).exists()
        ]
        assert not missing, f"not in the wheel: {missing}"
    assert "windrow/py.typed" in names
    assert "windrow_worker/boot.py" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == set(PACKAGES)


def test_sdist_holds_what_a_packager_needs(distributions: dict[str, Path]) -> None:
    with tarfile.open(distributions["sdist"]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "proto/windrow/rpc/v1/job.proto"} <= names
    assert not [name for name in names if name.startswith((".venv", ".windrow", "build/", "dist/"))]


def test_installed_command_tells_its_version(clean_python: Path) -> None:
    version = run(clean_python, "-c", "from importlib.metadata import version; print(version('windrow'))").strip()
    assert version in run(clean_python.parent / "windrow", "--version")


def test_every_installed_module_imports(clean_python: Path, tmp_path: Path) -> None:
    """All but those that need the package of an extra."""
    program = f"""
import importlib, pkgutil
for package in {PACKAGES!r}:
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith(("__main__", ".boot")):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                print(module.name, "needs", error.name)
"""
    assert set(run(clean_python, "-c", program, cwd=tmp_path).splitlines()) == {
        "windrow.fleet.providers.ray.ray_side needs ray",
        "windrow_agent.environments.conda_install needs rattler",
        "windrow_master.setup.authority needs cryptography",
    }


def test_setup_without_its_package_says_what_to_install(clean_python: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [clean_python.parent / "windrow", "setup", "--folder", tmp_path / "made"],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    assert "pip install 'windrow[setup]'" in done.stderr
    assert not (tmp_path / "made").exists()


JOB = """
type: pipeline
jobs:
  lengths:
    type: parallel
    inputs: {names: {type: uri_folder, path: ./input}}
    outputs: {rows: {type: uri_file, path: ./rows.txt}}
    input_data: ${{inputs.names}}
    mini_batch_size: "2"
    max_concurrency_per_instance: 1
    task:
      type: run_function
      code: ./code
      entry_script: lengths.py
      environment: azureml:unused:1
      append_row_to: ${{outputs.rows}}
"""
SCRIPT = """
import os

def run(mini_batch):
    return [f"{os.path.basename(name)} {os.path.getsize(name)}" for name in mini_batch]
"""


@pytest.mark.parametrize("major", [5, 6, 7])
def test_a_job_runs_beside_protobuf(clean_python: Path, tmp_path: Path, major: int) -> None:
    """The stubs, and grpc's packages of the same age, load and carry a whole job."""
    overlay = tmp_path / "overlay"
    # Newest of its major; 5 has to be new enough for the stubs.
    wanted = "protobuf==5.29.*" if major == 5 else f"protobuf=={major}.*"
    grpc_packages = ["grpcio", "grpcio-status", "grpcio-health-checking", "grpcio-reflection"]
    run(UV, "pip", "install", "--quiet", "--python", clean_python, "--target", overlay, wanted, *grpc_packages)
    told = run(clean_python, "-c", "import google.protobuf as p; print(p.__version__)", path=str(overlay)).strip()
    assert told.startswith(f"{major}.")

    (tmp_path / "input").mkdir()
    for name in "abcde":
        (tmp_path / "input" / name).write_text(name * 3)
    (tmp_path / "code").mkdir()
    (tmp_path / "code/lengths.py").write_text(SCRIPT)
    (tmp_path / "job.yml").write_text(JOB)
    run(clean_python.parent / "windrow", "run", "job.yml", path=str(overlay), cwd=tmp_path)
    assert (tmp_path / "rows.txt").read_text() == "a 3\nb 3\nc 3\nd 3\ne 3\n"
