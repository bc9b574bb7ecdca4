"""What comments cite of docs/ is there: the page, and the heading behind `#`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from page_headings import headings

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("client", "master", "agent", "worker", "proto", "benchmarks", "tests")
KINDS = (".py", ".proto", ".sql")
CITATION = re.compile(r"\bdocs/([\w/-]+\.md)((?:,?\s*#[\w-]+)*)")
PLANTED = (Path(__file__).name, "test_packaging_documentation.py")
"""Tests that name pages which are not there."""
PAGES = sorted((ROOT / "docs" / "reference" / "azure-ml").glob("*.md"))
BARE = re.compile(rf"(?<![\w/.-])(?:{'|'.join(re.escape(page.name) for page in PAGES)})\b")


def sources() -> Iterator[Path]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and "_pb2" not in path.name and path.name not in PLANTED:
                yield path


def wrong_citations(text: str) -> Iterator[str]:
    """What a text cites that is not there."""
    for citation in CITATION.finditer(text):
        page = ROOT / "docs" / citation[1]
        if not page.exists():
            yield f"docs/{citation[1]}"
            continue
        for anchor in re.findall(r"#([\w-]+)", citation[2]):
            if anchor not in headings(page):
                yield f"docs/{citation[1]}#{anchor}"
    yield from (f"{bare[0]} without its folder, docs/reference/azure-ml/" for bare in BARE.finditer(text))


@pytest.mark.parametrize("folder", SOURCES)
def test_comments_cite_what_is_there(folder: str) -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: {what}"
        for path in sources()
        if path.is_relative_to(ROOT / folder)
        for what in wrong_citations(path.read_text())
    ]
    assert not wrong


def test_comments_do_cite() -> None:
    cited = {citation[1] for path in sources() for citation in CITATION.finditer(path.read_text())}
    assert {f"reference/azure-ml/{page.name}" for page in PAGES} <= cited


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("docs/reference/azure-ml/parallel-job.md#retries, #thresholds.", []),
        ("docs/reference/azure-ml/parallel-job.md#retries,\n    #gone.", ["#gone"]),
        ("docs/reference/gone.md", ["docs/reference/gone.md"]),
        ("Reference: parallel-job.md, section 5.2.", ["without its folder"]),
    ],
)
def test_a_wrong_citation_is_found(text: str, found: list[str]) -> None:
    wrong = list(wrong_citations(text))
    assert len(wrong) == len(found)
    assert all(what in one for one, what in zip(wrong, found, strict=True))
