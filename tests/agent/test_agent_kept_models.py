"""Kept models are what was handed in: compared with their digest, and read once for as long as they do not change."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from windrow_agent.results import kept_models
from windrow_agent.results.kept_models import KeptModels


def kept(folder: Path, **files: str) -> Path:
    """A model as a master keeps it; returns the folder of its files."""
    contents = {f"net/{name}": text.encode() for name, text in files.items()}
    listed = "".join(f"{hashlib.sha256(content).hexdigest()} {name}\n" for name, content in sorted(contents.items()))
    place = folder / ".models" / hashlib.sha256(listed.encode()).hexdigest()
    for name, content in contents.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(content)
    return place / "net"


def test_a_model_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = kept(tmp_path, weights="1234", more="5")
    models = KeptModels()
    assert models.changed(str(model)) == ""
    read: list[str] = []
    monkeypatch.setattr(kept_models, "_digest", lambda content, seen: read.append(str(content.path)) or "")
    assert models.changed(str(model)) == models.changed(str(model / "weights")) == ""
    assert not read
    monkeypatch.undo()
    before = (model / "weights").stat()
    (model / "weights").write_text("1235")
    os.utime(model / "weights", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert "have changed since" in models.changed(str(model))
    (model / "weights").write_text("1234")
    assert models.changed(str(model)) == ""


@pytest.mark.parametrize("change", ["added", "gone", "link", "all"])
def test_what_is_beside_or_missing_counts(tmp_path: Path, change: str) -> None:
    model = kept(tmp_path, weights="1234", more="5")
    weights = model / "weights"
    if change == "added":
        (model.parent / "beside").write_text("code that runs")
    elif change == "all":
        model.rename(tmp_path / "elsewhere")
    else:
        weights.rename(tmp_path / "weights")
        if change == "link":
            weights.symlink_to(tmp_path / "weights")
    assert "have changed since" in KeptModels().changed(str(model))


def test_other_places_are_nobodys_model(tmp_path: Path) -> None:
    (tmp_path / ".models").mkdir()
    for path in (tmp_path, tmp_path / ".models", tmp_path / ".models" / ("0" * 63), Path("/none")):
        assert KeptModels().changed(str(path)) == ""
    assert "cannot be read" in KeptModels().changed(str(tmp_path / ".models" / ("0" * 64) / "net"))
