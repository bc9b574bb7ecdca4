"""The pages about fleets: their files can be read, their template works, and their table of keys is whole."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml
from documented_commands import ROOT, block
from windrow.fleet import file, scaled_job
from windrow.fleet.file import load_fleet_file
from windrow.fleet.provider import AgentCommand, Request, Seen, Shape, State
from windrow.fleet.providers import command, process, registry
from windrow.fleet.providers.docker import settings as docker_settings
from windrow.fleet.providers.kubernetes import settings as kubernetes_settings
from windrow.fleet.providers.ray import settings as ray_settings
from windrow.fleet.providers.slurm import settings as slurm_settings
from windrow.fleet.providers.ssh import settings as ssh_settings

HOW_TO, REFERENCE = "docs/how-to/run-a-fleet.md", "docs/reference/fleet-file.md"
KUBERNETES = "docs/how-to/run-a-fleet-on-kubernetes.md"
TOOLS = {
    "enqueue": 'echo "7\t$2\twaits\tPriority" > entry; echo 7',
    "entries": "cat entry 2>/dev/null || true",
    "dequeue": 'sed -i "s/waits/killed/" entry; echo yes',
}


@pytest.mark.parametrize("page", [HOW_TO, REFERENCE, KUBERNETES])
def test_the_files_on_the_pages_are_right(page: str, tmp_path: Path) -> None:
    text = re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)[0]
    (tmp_path / "fleet.yml").write_text(text)
    read = load_fleet_file(tmp_path / "fleet.yml")
    assert read.fleet.name == "site" and not read.warnings


def test_the_reference_names_all_keys() -> None:
    page = (ROOT / REFERENCE).read_text()
    first_cells = re.findall(r"^\| (`\w+`(?:, `\w+`)*)", page, re.MULTILINE)
    named = {name for cell in first_cells for name in re.findall(r"\w+", cell)}
    engines = (
        *(process._KEYS, command._KEYS, docker_settings._KEYS, kubernetes_settings._FIELDS),
        *(ray_settings._KEYS, slurm_settings._FIELDS, ssh_settings._KEYS),
    )
    assert named == {*file._GROUP, *file._AGENT, *(key for keys in engines for key in keys)}
    options = {option.removeprefix("--") for option in file._GIVEN_BY_THE_FLEET} - {
        "ca-file",
        "join-token-file",
        "config",
    }
    (sentence,) = re.findall(r"^The fleet itself gives .*", page, re.MULTILINE)
    assert set(re.findall(r"`--([\w-]+)`", sentence)) == options
    for kind in registry.kinds():
        assert f"`{kind}`" in page


def test_the_template_speaks_to_an_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "engine.py").write_text("\n".join(block(REFERENCE, "import json").lines))
    for name, script in TOOLS.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    words = {name: (sys.executable, "engine.py", name) for name in ("submit", "list", "cancel")}
    made = command.Commands(command.Settings(**words, why=(), timeout_s=60, folder=str(tmp_path)), "f-g-")
    assert made.allocations() == []
    assert made.submit(Request("f-g-x1", Shape(1), None, AgentCommand(("windrow", "agent"), {}))) == "7"
    (seen,) = made.allocations()
    assert seen == Seen("f-g-x1", "7", State.QUEUED, "Priority")
    assert made.cancel(seen, only_queued=True)
    assert [one.state for one in made.allocations()] == [State.PREEMPTED]


def test_the_page_names_all_that_a_trigger_of_keda_says() -> None:
    page = (ROOT / KUBERNETES).read_text()
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| `--([\w-]+)` \|$", page, re.MULTILINE)
    assert dict(rows) == {key: key for key in scaled_job.KEYS}
    assert f"`--label {scaled_job.LABEL}=NAMESPACE/NAME`" in page
    example = yaml.safe_load(re.findall(r"```yaml\n(triggers:\n.*?)```", page, re.DOTALL)[0])
    (trigger,) = example["triggers"]
    assert scaled_job.read("ml", "agents", trigger["metadata"]).pool == "gpu"
