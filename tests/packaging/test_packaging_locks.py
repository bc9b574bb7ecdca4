"""What the images install is locked: for this pyproject.toml, for both processors, from wherever the packages come."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SUPPLY = ROOT / "docker" / "supply"
AGAIN = "Run 'make lock' and commit the result."

pytestmark = pytest.mark.timeout(600)  # downloads, on slow lines too


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The modules of docker/supply, which is a program, not a package."""
    monkeypatch.syspath_prepend(str(SUPPLY))
    names = ("locks", "licences")
    yield {name: __import__(name) for name in names}
    for name in (*names, "spdx"):
        sys.modules.pop(name, None)


@pytest.fixture
def locks(modules: dict[str, ModuleType]) -> Any:
    """The module that makes and reads locks."""
    return modules["locks"]


@pytest.fixture
def licences(modules: dict[str, ModuleType]) -> Any:
    """The module that lists licences."""
    return modules["licences"]


def supply(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program, as make does."""
    return subprocess.run(
        [sys.executable, SUPPLY, *arguments],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def disagreements(locks: Any, root: Path = ROOT, folder: Path = ROOT / "docker" / "locked") -> list[str]:
    """Where pyproject.toml and the locks are not of one mind."""
    parts = locks.read_parts(root)
    found = [] if locks.made_from(folder) == locks.digest(parts) else ["the locks were made from other requirements"]
    core = locks.read("core", folder)
    for part, lines in parts.items():
        pins = [*locks.read(part, folder), *core]
        for wanted in map(Requirement, lines):
            versions = [pin.version for pin in pins if pin.name == canonicalize_name(wanted.name)]
            if not versions or not all(wanted.specifier.contains(one, prereleases=True) for one in versions):
                found.append(f"{part} wants {wanted}, and has {versions}")
    names = {path.stem for path in folder.glob("*.txt")}
    return found + [f"{name}.txt is of no part" for name in names - set(parts)]


def test_the_locks_are_those_of_pyproject(locks: Any) -> None:
    assert disagreements(locks) == [], AGAIN


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('  "grpcio>=', '  "tqdm>=4",\n  "grpcio>=', "wants tqdm>=4"),
        ('"grpcio>=1.71.2"', '"grpcio>=1000"', "wants grpcio>=1000"),
        ('  "structlog>=24.1",\n', "", "other requirements"),
        ('setup = ["cryptography>=42"]', 'setup = ["cryptography[ssh]>=42"]', "other requirements"),
        ('"hatchling>=1.25"', '"hatchling>=1000"', "build wants hatchling>=1000"),
    ],
)
def test_another_pyproject_is_noticed(locks: Any, tmp_path: Path, old: str, new: str, complaint: str) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    assert old in text
    (tmp_path / "pyproject.toml").write_text(text.replace(old, new, 1))
    assert complaint in "\n".join(disagreements(locks, tmp_path))


def test_what_is_locked_stays_locked(locks: Any, tmp_path: Path) -> None:
    """Locking again changes nothing, whatever has been published since; and what was deleted comes back."""
    folder = tmp_path / "locked"
    shutil.copytree(ROOT / "docker" / "locked", folder)
    before = {path.name: path.read_text() for path in folder.iterdir()}
    (folder / "README.md").unlink()
    (folder / "query.txt").unlink()
    (folder / "gone.txt").write_text("")
    locks.write(folder=folder)
    assert {path.name: path.read_text() for path in folder.iterdir()} == before, AGAIN


def test_locks_name_no_index(locks: Any) -> None:
    """Neither that of who made them nor any other: the place that builds says where packages come from."""
    for path in (ROOT / "docker" / "locked").iterdir():
        text = path.read_text()
        assert not re.search(r"://|--(?!hash)|@|\binfo\b|localhost|\d+\.\d+\.\d+\.\d+:\d", text), path.name
    for part, pins in locks.read_all().items():
        assert pins, part
        for pin in pins:
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in pin.digests), (part, pin)


@pytest.mark.parametrize("processor", ["amd64", "arm64"])
def test_every_part_installs_on_every_processor_and_python(locks: Any, tmp_path: Path, processor: str) -> None:
    """Alone with the core, as images install it: complete, from wheels, with the digests that are locked."""
    for python in locks.PYTHONS:
        for part in locks.read_parts():
            files = [part] if part in ("core", "build", "sbom") else ["core", part]
            words = [word for file in files for word in ("-r", f"docker/locked/{file}.txt")]
            options = ["--dry-run", "--only-binary", ":all:", "--require-hashes", "--python-version", python]
            platform = ["--python-platform", locks.PLATFORMS[processor], "--target", str(tmp_path / "none")]
            done = subprocess.run(
                [locks.UV, "pip", "install", *options, *platform, *words],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{part} for Python {python} on {processor}: {done.stderr}"


def test_all_licences_are_listed_and_allowed(locks: Any, licences: Any) -> None:
    where: dict[tuple[str, str], list[str]] = {}
    for part, pins in locks.read_all().items():
        for pin in pins:
            where.setdefault((pin.name, pin.version), []).append(part)
    rows = licences.read()
    listed = {(row.name, row.version): row.where for row in rows}
    assert listed == {key: ", ".join(dict.fromkeys(parts)) for key, parts in where.items()}, AGAIN
    assert licences.refused(rows) == []


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False),
        ("(MIT OR GPL-3.0-only) AND AGPL-3.0-or-later", False),
        ("Apache-2.0 WITH LLVM-exception", False),
        ("unknown", False),
        ("MIT AND", False),
        ("", False),
    ],
)
def test_a_licence_is_allowed_by_what_it_says(licences: Any, expression: str, allowed: bool) -> None:
    assert licences.allowed(expression) is allowed


def test_a_licence_that_is_not_allowed_fails(licences: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(licences.HEAD + "| one | 1.0 | MIT | core |\n| two | 2.0 | AGPL-3.0-only | core |\n")
    assert [row.name for row in licences.refused(licences.read(page))] == ["two"]


def advisory(name: str, **affected: object) -> dict[str, object]:
    """A document of OSV's about a package of PyPI."""
    package = {"name": name, "ecosystem": "PyPI"}
    return {
        "id": f"TEST-{name}",
        "aliases": [f"CVE-{name}"],
        "summary": f"harm by {name}",
        "modified": "2026-05-01T00:00:00Z",
        "schema_version": "1.6.0",
        "affected": [{"package": package, **affected}],
    }


def database(path: Path, *advisories: dict[str, object]) -> Path:
    """A database of them, as OSV publishes it."""
    with zipfile.ZipFile(path, "w") as archive:
        for one in advisories:
            archive.writestr(f"{one['id']}.json", json.dumps(one))
    return path


def ranges(**events: str) -> list[dict[str, object]]:
    return [{"type": "ECOSYSTEM", "events": [{kind: version} for kind, version in events.items()]}]


NOWHERE = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


def test_an_audit_without_a_network_names_what_a_database_knows(locks: Any, tmp_path: Path) -> None:
    (uv,) = locks.read("agent")
    (duckdb,) = locks.read("query")
    deprecated = sorted(pin.version for pin in locks.read("delta") if pin.name == "deprecated")
    known = database(
        tmp_path / "all.zip",
        advisory("uv", ranges=ranges(introduced="0", fixed="9999")),
        advisory("Deprecated", versions=deprecated[-1:]),
        advisory("duckdb", ranges=ranges(introduced="0", last_affected=duckdb.version)),
        advisory("grpcio", ranges=ranges(introduced="0", fixed="1.0")),
        advisory("pandas", ranges=ranges(introduced="9999")),
        advisory("not-of-ours", ranges=ranges(introduced="0")),
    )
    done = supply("audit", str(known), **NOWHERE)
    assert done.returncode == 1, done.stderr
    assert f"uv {uv.version} (agent): CVE-uv TEST-uv: fixed in 9999\n  harm by uv" in done.stdout
    assert f"duckdb {duckdb.version} (partition, query): CVE-duckdb TEST-duckdb: not fixed yet" in done.stdout
    assert f"deprecated {deprecated[-1]} (delta)" in done.stdout
    assert done.stdout.count("TEST-") == 3
    assert 'make lock UPGRADE="deprecated duckdb uv"' in done.stderr


def test_an_audit_that_finds_nothing_says_of_how_many_packages_and_whom_it_asked(locks: Any, tmp_path: Path) -> None:
    known = database(tmp_path / "all.zip", advisory("grpcio", ranges=ranges(introduced="0", fixed="1.0")))
    done = supply("audit", str(known), **NOWHERE)
    count = len({(pin.name, pin.version) for pins in locks.read_all().values() for pin in pins})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"None of {count} locked packages has a known vulnerability. Asked: {known} (advisories: 1, the newest of "
        "2026-05-01).\n"
    )


def test_an_audit_that_cannot_ask_does_not_say_that_all_is_well(tmp_path: Path) -> None:
    done = supply("audit", **NOWHERE)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing is known about the locked packages" in done.stderr and "make audit DATABASE=" in done.stderr
    (tmp_path / "broken.zip").write_bytes(b"PK")
    for path in (tmp_path / "broken.zip", tmp_path / "missing.zip", database(tmp_path / "empty.zip")):
        done = supply("audit", str(path), **NOWHERE)
        assert (done.returncode, done.stdout) == (2, "")
        assert str(path) in done.stderr and "Traceback" not in done.stderr
