"""The pages under docs/ and the README name what is there, all of it, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from windrow.cli import exit_codes
from windrow_master.core.states import Cause

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md")) + sorted(ROOT.glob("*.md")) + sorted((ROOT / "examples").rglob("*.md"))


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
    text = page.read_text()
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text)
    for target in [*links, *re.findall(r' src(?:set)?="([^"]+)"', text)]:
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


OF_A_STATE_FOLDER = ("agent/", "agent/control-groups", "agent/incarnation.json", "agent/job-users")
"""Files of an embedded agent, whose folder is named as the agent's sources are."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_pages_name_exist(page: Path) -> None:
    roots = ("master/", "agent/", "worker/", "client/", "tests/", "proto/", "benchmarks/", "docs/", "examples/")
    for name in re.findall(r"`([\w./-]+)`", page.read_text()):
        if name.startswith(roots) and page.is_relative_to(ROOT / "docs") and name not in OF_A_STATE_FOLDER:
            assert (ROOT / name).exists(), f"{page.name} names {name}"
