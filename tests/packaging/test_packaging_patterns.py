"""Regular expressions that mean the same to every interpreter: no possessive quantifiers and no atomic groups.

CPython before 3.11 does not know them, and 3.11.2 (Debian 12's own) matches nested ones wrongly: a table was once cut
within its records.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
ROOTS = ("agent", "benchmarks", "client", "docker", "examples", "master", "tests", "worker")
CLASS_OR_ESCAPE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
FORBIDDEN = re.compile(r"[*+?}]\+|\(\?>")


def forbidden(source: str) -> Iterator[tuple[int, str]]:
    """The texts of a module that uses `re` which hold what is forbidden, with their lines; docstrings may."""
    tree = ast.parse(source)
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    if not names & {"re", "sre_parse", "regex"}:
        return
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes) and id(node) not in told:
            text = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
            if FORBIDDEN.search(CLASS_OR_ESCAPE.sub("x", text)):
                yield node.lineno, text


def test_no_pattern_is_possessive_or_atomic() -> None:
    files = [path for root in ROOTS for path in sorted((REPOSITORY / root).rglob("*.py")) if path != Path(__file__)]
    assert len(files) > 500
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}: {text!r}"
        for path in files
        for line, text in forbidden(path.read_text())
    ]
    assert not found, "Write these without possessive quantifiers and atomic groups:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("pattern", "bad"),
    [
        (r"a++", True), (r"[^,\n]*+", True), (r"(?:a|b)?+c", True), (r"a{2,3}+", True), (r"(?>ab)", True),
        (r"[*+?}+]+", False), (r"\++", False), (r"a+\+", False), (r"[]*+]+", False), (r"a+?", False),
    ],
)  # fmt: skip
def test_what_is_forbidden(pattern: str, bad: bool) -> None:
    assert bool(list(forbidden(f"import re\nre.compile({pattern!r})\n"))) is bad
    assert not list(forbidden(f"print({pattern!r})\n"))


def test_the_pattern_that_cut_records_apart_is_found() -> None:
    source = "import re\nfield = rb'(?:\"(?:[^\"]++|\"\")*+(?:\"' + re.escape(b',') + b')'\n"
    assert [line for line, _ in forbidden(source)] == [2]
