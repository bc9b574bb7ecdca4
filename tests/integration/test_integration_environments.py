"""A whole run in an environment that is built from PyPI or from a conda channel, as `windrow run` does by itself."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from conda_channel import CondaChannel
from embedded_run import DEADLINE_S, WINDROW, EmbeddedRun
from package_index import package_index

SCRIPT = """
import sys
import iniconfig
from importlib.metadata import version

def run(mini_batch):
    return [f"{version('iniconfig')} {sys.prefix}" for _ in mini_batch]
"""


@pytest.fixture
def index(tmp_path: Path) -> None:
    """Skips where PyPI, or what stands for it here, cannot be reached."""
    from uv import find_uv_bin

    probe = [find_uv_bin(), "pip", "install", "--dry-run", "--no-cache", "--target", str(tmp_path / "probe")]
    done = subprocess.run([*probe, "iniconfig==2.0.0"], capture_output=True, text=True, check=False, timeout=240)
    if done.returncode != 0:
        pytest.skip(f"no index of packages can be reached: {done.stderr.strip()[-200:]}")


def test_a_run_builds_what_its_job_file_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: None) -> None:
    monkeypatch.setenv("WINDROW_ENVIRONMENTS_FOLDER", str(tmp_path / "environments"))
    run = EmbeddedRun(tmp_path / "run", SCRIPT, 3)
    job = run.folder / "job.yml"
    written = "environment: {conda_file: {dependencies: [pip: [iniconfig==2.0.0]]}}"
    job.write_text(job.read_text().replace("type: run_function", f"type: run_function\n      {written}"))
    code, text = run.run()
    assert code == 0, text
    (folder,) = (note.with_suffix("") for note in (tmp_path / "environments").glob("*.json"))
    assert run.output.read_text() == f"2.0.0 {folder}\n" * 3
    (log,) = run.state.glob("jobs/*/logs/score/user/environment/*/process000.build.txt")
    assert "iniconfig==2.0.0" in log.read_text()

    # A mini-batch is replayed in it, and it is built again where it is gone.
    (job_folder,) = (run.state / "jobs").iterdir()
    command = [WINDROW, "mb", "replay", job_folder.name, "0", "--state", str(run.state)]
    for building in (False, True):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        assert done.returncode == 0, done.stderr
        assert ("Building the step's environment" in done.stderr) is building
        assert f"    2.0.0 {folder}\n" in done.stderr
        shutil.rmtree(folder)

    # Told to use its own Python, it says which steps that concerns. The script finds no such version there, or none.
    _, text = run.run("--environments", "own", "--restart")
    assert "--environments own: no environment is built for score" in text

    job.write_text(job.read_text().replace("2.0.0", "99.0"))
    code, text = run.run("--restart")
    assert code == 1
    assert "iniconfig==99.0" in text.splitlines()[-1]
    assert "--environments own" in text


R_SCRIPT = """
import os
import subprocess
import pebble
import stone

def run(mini_batch):
    path = os.path.basename(mini_batch[0])
    said = subprocess.run(["Rscript", "score.R", path], check=True, capture_output=True, text=True).stdout.strip()
    return [f"{said} {stone.colour} {pebble.colour} {os.environ['CONDA_PREFIX']}"]
"""

CONDA_FILE = """
channels: [{channel}]
dependencies:
  - python
  - r-base=4.3
  - stone
  - pip: [pebble]
"""


def test_a_run_builds_a_conda_list_with_packages_that_pypi_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDROW_ENVIRONMENTS_FOLDER", str(tmp_path / "environments"))
    monkeypatch.setenv("RATTLER_CACHE_DIR", str(tmp_path / "rattler"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    channel = CondaChannel(tmp_path / "channel")
    channel.add("stone", "1.0", {"site-packages/stone.py": "colour = 'pink'\n"}, depends=["python"], noarch=True)
    run = EmbeddedRun(tmp_path / "run", R_SCRIPT, 2)
    (run.folder / "environment.yml").write_text(CONDA_FILE.format(channel=channel.url))
    job = run.folder / "job.yml"
    written = "environment: {conda_file: ./environment.yml}"
    job.write_text(job.read_text().replace("type: run_function", f"type: run_function\n      {written}"))
    with package_index() as index:
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        code, text = run.run()
    assert code == 0, text
    (folder,) = (note.with_suffix("") for note in (tmp_path / "environments").glob("*.json"))
    assert run.output.read_text() == "".join(f"R says score.R f0000{n} pink white {folder}\n" for n in range(2))
    assert "the whole list is built from conda's channels, since PyPI does not have r-base" in " ".join(text.split())

    # A mini-batch is replayed in it.
    (job_folder,) = (run.state / "jobs").iterdir()
    command = [WINDROW, "mb", "replay", job_folder.name, "0", "--state", str(run.state)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEADLINE_S)
    assert done.returncode == 0 and "R says score.R f00000 pink white" in done.stderr, done.stderr

    environment = run.folder / "environment.yml"
    environment.write_text(environment.read_text().replace("r-base=4.3", "r-base=5"))
    code, text = run.run("--restart")
    assert code == 1
    assert "No candidates were found for r-base 5.*" in text


AT_EACH_START = """
import os, resource
parent = os.getppid()
if b"windrow_agent" in open(f"/proc/{{parent}}/cmdline", "rb").read():
    said = []
    for attempt in (
        lambda: os.kill(parent, 0),
        lambda: resource.prlimit(parent, resource.RLIMIT_NOFILE, resource.prlimit(parent, resource.RLIMIT_NOFILE)),
        lambda: open(f"/proc/{{parent}}/environ").close(),
    ):
        try:
            attempt()
        except PermissionError:
            said.append("denied")
        else:
            said.append("done")
    who = "worker" if "boot.py" in open("/proc/self/cmdline").read() else "builder"
    try:
        open({log!r}, "a").write(who + " " + " ".join(said) + "\\n")
    except PermissionError:
        pass
"""

PEBBLE = """
import pebble
def run(mini_batch):
    return [pebble.colour for _ in mini_batch]
"""


@pytest.mark.parametrize("mode", ["off", "auto", "strict"])
def test_the_code_of_packages_reaches_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """Neither while an environment is built and checked, nor in a worker."""
    monkeypatch.setenv("WINDROW_ENVIRONMENTS_FOLDER", str(tmp_path / "environments"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    log, attempts = tmp_path / "log", tmp_path / "attempts.py"
    attempts.write_text(AT_EACH_START.format(log=str(log)))
    run = EmbeddedRun(tmp_path / "run", PEBBLE, 1)
    job = run.folder / "job.yml"
    written = "environment: {conda_file: {dependencies: [pip: [pebble, burr]]}}"
    job.write_text(job.read_text().replace("type: run_function", f"type: run_function\n      {written}"))
    with package_index() as index:
        index.add_to_start("burr", f"exec(open({str(attempts)!r}).read(), {{}})")
        monkeypatch.setenv("UV_DEFAULT_INDEX", index.url)
        monkeypatch.setenv("WINDROW_ALLOW_PATH", f"{attempts} {log}:rw")
        log.touch()
        code, text = run.run("--sandbox", mode)
    assert code == 0, text
    assert run.output.read_text() == "white\n"
    said = {line.partition(" ")[0]: line.partition(" ")[2] for line in log.read_text().splitlines()}
    assert sorted(said) == ["builder", "worker"]
    for words in said.values():
        assert words.startswith("done done ") if mode == "off" else words == "denied denied denied"
