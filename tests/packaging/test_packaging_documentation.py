"""The documentation site builds, strictly, from what is here alone; and its pages load nothing from elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of a copy of this repository. Proxies that lead nowhere: what asks the network fails."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", site],
        cwd=root,
        env=os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What the site is built from, to be changed."""
    root = tmp_path / "copy"
    root.mkdir()
    for name in ("docs", "mkdocs.yml"):
        subprocess.run(["cp", "-R", ROOT / name, root / name], check=True)
    return root


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stdout + done.stderr
    pages = [page for page in (tmp_path / "site").rglob("*.html") if page.name != "404.html"]
    assert len(pages) == len(list((ROOT / "docs").rglob("*.md")))
    for page in pages:
        text = page.read_text()
        loaded = re.findall(r"<(?:script|img|iframe|source)[^>]+(?:src|srcset)=[\"']?([^\"'\s>]+)", text)
        loaded += re.findall(r"<link[^>]+rel=[\"']?(?:stylesheet|icon|preload)[^>]+href=[\"']?([^\"'\s>]+)", text)
        assert not [address for address in loaded if "://" in address or address.startswith("//")], page.name


@pytest.mark.parametrize(
    ("page", "text", "complaint"),
    [
        ("tutorial.md", "[nothing](nowhere.md)", "nowhere.md"),
        ("tutorial.md", "[nothing](tutorial.md#no-such-heading)", "no-such-heading"),
        ("how-to/forgotten.md", "# Forgotten", "forgotten.md"),
    ],
)
def test_a_broken_link_or_a_page_outside_the_navigation_is_an_error(
    copy: Path, tmp_path: Path, page: str, text: str, complaint: str
) -> None:
    with (copy / "docs" / page).open("a") as file:
        file.write(f"\n{text}\n")
    done = build(copy, tmp_path / "site")
    assert done.returncode != 0
    assert complaint in done.stdout + done.stderr
