"""How much scripts of one job may hand in: bytes, files, models and their words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from opened_store import open_store
from windrow.rpc.v1 import asset_service_pb2 as pb
from windrow_master.assets import AssetRefused, Assets
from windrow_master.core.ids import StepId
from windrow_master.datastores import Datastores
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.limits import Limits
from windrow_master.script_files import FileRefused, ScriptFiles, ScriptRun, TooMuch
from windrow_master.store.sqlite.store import SqliteStore


@dataclass
class Master:
    """What of a master takes files of scripts."""

    folder: Path
    store: SqliteStore
    limits: Limits

    @property
    def artifacts(self) -> ArtifactFolder:
        """It has none."""
        return ArtifactFolder(self.folder / "artifacts")

    def files(self) -> ScriptFiles:
        """As a master that has just started."""
        reader, record = self.store.reader(), self.store.record_asset
        assets = Assets(reader, record, Datastores({}), None, self.artifacts, self.limits)
        return ScriptFiles(self.folder, assets, Datastores({}), self.limits)

    def run(self, job_id: str = "job", project: str = "default") -> ScriptRun:
        """A run of the only step of a job."""
        logs = self.folder / "jobs" / job_id / "logs"
        return ScriptRun(job_id, project, StepId(1 + len(job_id)), "score", logs / "score", logs)


@contextmanager
def master(folder: Path, **limits: int) -> Iterator[Master]:
    store = open_store(folder / "state")
    try:
        yield Master(folder, store, Limits(**limits))
    finally:
        store.close()


def upload(files: ScriptFiles, run: ScriptRun, *names: str) -> None:
    with files.keeping(run) as kept:
        for name in names:
            kept.begin(name)
        kept.end()


def register(files: ScriptFiles, run: ScriptRun, name: str, *, content: bytes = b"x", description: str = "") -> str:
    wanted = pb.Asset(kind=pb.ASSET_KIND_MODEL, name=name, description=description)
    with files.model_content(run, wanted) as kept:
        kept.begin("model/weights")
        kept.write(content)
        return files.register(run, wanted, kept).version


def test_files_are_counted_though_they_are_empty(tmp_path: Path) -> None:
    with master(tmp_path, script_files_per_job=3) as made:
        files, run = made.files(), made.run()
        upload(files, run, "a", "b", "c")
        # The same name again is no file more.
        upload(files, run, "a", "c")
        with pytest.raises(TooMuch, match=r"more than 3 files in all.*script_files_per_job.*archive"):
            upload(files, run, "d")
        with pytest.raises(TooMuch, match="script_files_per_job"):
            register(files, run, "net")
        assert files.names(run) == ["a", "b", "c"]
        # Another job has room, and a master that starts again counts what is there.
        upload(files, made.run("other"), "d")
        with pytest.raises(TooMuch, match="script_files_per_job"):
            upload(made.files(), run, "d")


def test_names_that_need_many_folders_are_refused(tmp_path: Path) -> None:
    """A name of 1,024 bytes could make five hundred, and no limit counts folders."""
    with master(tmp_path) as made:
        files, run = made.files(), made.run()
        upload(files, run, "a/" * 63 + "f")
        with pytest.raises(FileRefused, match="64 parts"):
            upload(files, run, "b/" * 64 + "f")
        with pytest.raises(FileRefused, match="64 parts"), files.model_content(run, pb.Asset(name="net")) as kept:
            kept.begin("model/" * 64 + "weights")
        assert files.names(run) == ["a/" * 63 + "f"]


def test_models_are_counted_and_one_that_is_handed_in_again_is_none_more(tmp_path: Path) -> None:
    with master(tmp_path, script_models_per_job=2) as made:
        files, run = made.files(), made.run()
        assert [register(files, run, "net"), register(files, run, "net", content=b"y")] == ["1", "2"]
        with pytest.raises(TooMuch, match=r"more than 2 versions of models.*script_models_per_job"):
            register(files, run, "net", content=b"z")
        # As a mini-batch does that runs again.
        assert register(files, run, "net") == "1"
        assert register(made.files(), run, "net") == "1"
        with pytest.raises(TooMuch, match="script_models_per_job"):
            register(made.files(), run, "net", content=b"z")
        assert not [path for path in (tmp_path / ".models").iterdir() if path.name.startswith(".partial")]
        assert len(list((tmp_path / ".models").iterdir())) == 2
        assert register(files, made.run("other"), "net", content=b"z") == "3"


def test_the_models_of_all_jobs_are_counted_and_one_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    with master(tmp_path, assets_per_kind=2) as made:
        files, run = made.files(), made.run()
        register(files, run, "net")
        register(files, made.run("other"), "other")
        for job in ("job", "third"):
            with pytest.raises(AssetRefused, match=r"has 2 versions of assets of the kind model.*assets_per_kind"):
                register(files, made.run(job, "another"), "more", content=b"y")
        assert register(files, run, "net") == "1"
        assert len(list((tmp_path / ".models").iterdir())) == 1, "the two have equal content"
        assets = Assets(made.store.reader(), made.store.record_asset, Datastores({}), None, made.artifacts, made.limits)
        with pytest.raises(AssetRefused) as refused:
            assets.create(pb.Asset(kind=pb.ASSET_KIND_MODEL, name="mine", type="custom_model", path=str(tmp_path)))
        assert refused.value.reason == "LIMIT_REACHED"
        data = pb.Asset(kind=pb.ASSET_KIND_DATA, name="mine", type="uri_folder", path=str(tmp_path))
        assert assets.create(data).version == "1"


def test_the_models_of_a_project_leave_room_for_those_of_others(tmp_path: Path) -> None:
    with master(tmp_path, assets_per_kind=3, assets_per_project=2) as made:
        files, run = made.files(), made.run(project="greedy")
        register(files, run, "net")
        register(files, run, "net", content=b"y")
        with pytest.raises(AssetRefused, match=r"The project 'greedy' has 2 versions.*assets_per_project") as refused:
            register(files, made.run("other", "greedy"), "more", content=b"z")
        assert refused.value.reason == "LIMIT_REACHED"
        assert len(list((tmp_path / ".models").iterdir())) == 2, "what is refused leaves nothing"
        assets = Assets(made.store.reader(), made.store.record_asset, Datastores({}), None, made.artifacts, made.limits)
        model = pb.Asset(kind=pb.ASSET_KIND_MODEL, name="mine", type="custom_model", path=str(tmp_path))
        with pytest.raises(AssetRefused, match="assets_per_project"):
            assets.create(model, "greedy")
        assert register(files, made.run("third", "modest"), "net", content=b"z") == "3"
        with pytest.raises(AssetRefused, match=r"This master has 3 versions.*assets_per_kind"):
            assets.create(model, "modest")


def test_the_words_of_models_are_counted(tmp_path: Path) -> None:
    with master(tmp_path, script_words_bytes_per_job=1_000) as made:
        files, run = made.files(), made.run()
        register(files, run, "a", description="x" * 900)
        with pytest.raises(TooMuch, match="script_words_bytes_per_job"):
            register(files, run, "b", description="x" * 900)
        register(files, run, "b")
