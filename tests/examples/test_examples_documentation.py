"""The pages under docs/ and the README name what is there, all of it, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from windrow.cli import exit_codes
from windrow.spec.settings import schema
from windrow.spec.settings.arguments import ALL_ARGUMENTS
from windrow.spec.settings.fields import Field
from windrow_master.core.states import Cause

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md")) + sorted((ROOT / "examples").rglob("*.md"))


CONTAINERS = {"settings", "resources", "retry_settings", "task"}
"""Keys that only hold other keys."""


def known_keys() -> dict[str, Field]:
    keys = {}
    for table in (schema.PIPELINE, schema.STEP, schema.COMPONENT, schema.TASK, schema.INPUT, schema.OUTPUT):
        keys.update(table)
    for place, table in (
        ("settings.", schema.PIPELINE_SETTINGS),
        ("retry_settings.", schema.RETRY_SETTINGS),
        ("resources.", schema.RESOURCES),
    ):
        keys.update({place + key: field for key, field in table.items() if key not in schema.STEP})
    return {key: field for key, field in keys.items() if key not in CONTAINERS}


def documented(page: str) -> dict[str, set[str]]:
    """From each name in backquotes in the first cell of a table row to what the second cells say of it."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) >= 2:
            for name in re.findall(r"`([^`]+)`", cells[0]):
                found.setdefault(name, set()).add(cells[1])
    return found


@pytest.mark.parametrize("key", sorted(known_keys()))
def test_every_key_of_a_job_file_is_documented(key: str) -> None:
    says = documented("docs/job-file.md").get(key) or pytest.fail(f"docs/job-file.md does not list {key}")
    if known_keys()[key].effect:
        assert "checked" in says


@pytest.mark.parametrize("name", sorted(ALL_ARGUMENTS))
def test_every_runtime_argument_is_documented(name: str) -> None:
    says = documented("docs/job-file.md").get(f"--{name}") or pytest.fail(f"docs/job-file.md does not list --{name}")
    argument = ALL_ARGUMENTS[name]
    assert ("checked" in says) == bool(argument.field.effect)


def test_exit_codes_are_documented() -> None:
    codes = {value for name, value in vars(exit_codes).items() if name.isupper()}
    page = (ROOT / "docs/reference/exit-codes.md").read_text()
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.M)} == codes


def test_causes_are_documented() -> None:
    section = (ROOT / "docs/explanation/failures.md").read_text()
    missing = [
        cause.name.lower() for cause in Cause if cause is not Cause.NONE and f"`{cause.name.lower()}`" not in section
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


OF_A_STATE_FOLDER = ("agent/", "agent/incarnation.json")
"""Files of an embedded agent, whose folder is named as the agent's sources are."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_pages_name_exist(page: Path) -> None:
    roots = ("master/", "agent/", "worker/", "client/", "tests/", "proto/", "benchmarks/", "docs/", "examples/")
    for name in re.findall(r"`([\w./-]+)`", page.read_text()):
        if name.startswith(roots) and page.is_relative_to(ROOT / "docs") and name not in OF_A_STATE_FOLDER:
            assert (ROOT / name).exists(), f"{page.name} names {name}"
