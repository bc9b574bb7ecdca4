"""The pages of docs/ that are made from the code are what the code says, and leave nothing out."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_headings import headings

ROOT = Path(__file__).resolve().parents[2]
GENERATE = ROOT / "docs" / "generate"
PAGES = [*sorted((ROOT / "docs" / "reference").rglob("*.md")), ROOT / "docs" / "glossary.md"]

INTERNAL = {
    "WINDROW_CRASH_POINT",  # ends a master at a named point, in tests
    "WINDROW_ENTRY",  # tells what a script starts as processes of its own where the script lies
    "WINDROW_MAP_WORKER",  # is set where the function of `windrow.map` runs, which must not call it again
    "WINDROW_DATASTORES",  # tells `azureml.core.Datastore`, where workers offer it, the folders of the notebook
    "WINDROW_MODELS",  # tells `azureml.core.Model`, where workers offer it, where registered models are
    "WINDROW_RUN",  # tells `azureml.core.Run`, where workers offer it, what it logs for, and where
    "WINDROW_RUN_FOLDER",  # is set by the embedded mode for its master
    "WINDROW_WORKER",  # marks the processes of a worker, so that the agent finds what they leave behind
}
"""Variables that Windrow sets for itself, or its tests for it: not for people."""


def test_generated_pages_are_what_the_code_says() -> None:
    checked = subprocess.run([sys.executable, GENERATE, "--check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_variable_of_ours_is_documented() -> None:
    sources = [path for role in ("client", "master", "agent", "worker") for path in (ROOT / role).rglob("*.py")]
    named = {name for path in sources for name in re.findall(r"\"(WINDROW_[A-Z_]+)\"", path.read_text())}
    documented = set(re.findall(r"`(WINDROW_[A-Z_]+)`", (ROOT / "docs" / "reference" / "settings.md").read_text()))
    assert named - documented == INTERNAL


def test_the_page_of_commands_has_the_examples_of_their_help() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert page.count("```sh\nwindrow ") > 30


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_a_heading(page: Path) -> None:
    wrong = []
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text()):
        file = page if not target else page.parent / target
        if "://" not in target and (not file.exists() or (anchor and anchor not in headings(file.resolve()))):
            wrong.append(f"{target}#{anchor}")
    assert not wrong
