"""What scripts hand in while they run: files of their run, and models that they register.

    jobs/<job>/logs/<step>/user/files/…      files of the run of a step (`run.upload_file`)
    jobs/<job>/logs/user/files/…             of the run of the job (`run.parent.upload_file`)
    <datastore default>/.models/<digest>/…   the content of models; without that datastore, in the folder of outputs

1. A file has its name once it is whole and on the disk; a model is registered after its content is.
2. The digest of a model is of its content and names, so its folder is whole, and equal models share it.
3. A step registers the same content under the same name, with the same words, once: a mini-batch that runs again makes
   no second version.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from windrow.common.durable import put_in_place, sync_folder
from windrow.common.removal import discard_tree
from windrow.common.trees import walk
from windrow.rpc.v1 import asset_service_pb2 as pb

from windrow_master.assets import Assets
from windrow_master.core.ids import StepId
from windrow_master.crash_points import reach
from windrow_master.datastores import Datastores
from windrow_master.files.durable import make_durable
from windrow_master.kept_folders import MODELS
from windrow_master.limits import Limits, how_to_raise
from windrow_master.store.records import AssetRow

FILES = "user/files"
"""Below the logs of a step, and below those of its job."""
NAME_BYTES_MAX = 1024
_PART_BYTES_MAX = 255
_PARTS_MAX = 64
"""Each may be a folder more on the disk, and no limit counts those."""
_PARTIAL = ".windrow-partial"
"""The end of the names of files that are not whole; listings of logs leave them out."""
_LEFT_S = 86_400.0
"""Content of models that nobody finished is removed after this."""
_CHUNK = 1 << 20
_JOBS_COUNTED = 1_000
"""Jobs of which it is known how much they have handed in."""


class FileRefused(Exception):
    """A name that cannot be used."""


class FileUnknown(FileRefused):
    """The run has no file of this name."""


class TooMuch(FileRefused):
    """More than a limit allows."""


class ScriptRun(NamedTuple):
    """The run that a file belongs to. `logs`: its folder of logs; `job_logs`: that of its job."""

    job_id: str
    project: str
    step_id: StepId
    step_name: str
    logs: Path
    job_logs: Path

    @property
    def files(self) -> Path:
        """The folder of its files."""
        return self.logs / FILES


class Taken:
    """What one call brings, and what its job has handed in (`ScriptFiles._taking`)."""

    def __init__(self, job: _JobStock, limits: Limits, measure: Callable[[], _Stock]) -> None:
        """`measure`: what the job has handed in, by what is on the disk."""
        self._job = job
        self._limits = limits
        self._measure = measure
        self._by_call = 0
        self.pending = 0
        """Bytes of what is not whole yet."""
        self.pending_files = 0
        """Files that are not kept yet."""

    def add(self, count: int) -> None:
        """More bytes arrive. Raises TooMuch, OSError, StateError."""
        self._by_call += count
        most = self._limits.script_bytes_per_call
        if self._by_call > most:
            raise TooMuch(
                f"This call hands in more than {most:,} bytes, which is the master's limit script_bytes_per_call. Hand "
                f"in less, or write it to an output of the step; or {how_to_raise('script_bytes_per_call')}."
            )
        job, most = self._job, self._limits.script_bytes_per_job
        with job.lock:
            self.pending += count
            # What was replaced or removed since is not counted any more.
            if job.bytes_with(self._stock()) > most and job.bytes_with(self._measured_again()) > most:
                raise TooMuch(
                    f"The scripts of this job hand in more than {most:,} bytes in all, which is the master's limit "
                    "script_bytes_per_job. Hand in less, or write it to an output of the step; or "
                    f"{how_to_raise('script_bytes_per_job')}."
                )

    def add_file(self) -> None:
        """A file begins. Raises TooMuch, OSError, StateError."""
        job, most = self._job, self._limits.script_files_per_job
        with job.lock:
            self.pending_files += 1
            if job.files_with(self._stock()) > most and job.files_with(self._measured_again()) > most:
                raise TooMuch(
                    f"The scripts of this job hand in more than {most:,} files in all, which is the master's limit "
                    "script_files_per_job. Pack them into an archive, or write them to an output of the step; or "
                    f"{how_to_raise('script_files_per_job')}."
                )

    def settle(self, count: int, files: int) -> None:
        """So many bytes and files of the call are whole, and kept."""
        with self._job.lock:
            self.pending -= count
            self.pending_files -= files
            if (stock := self._job.stock) is not None:
                stock.bytes += count
                stock.files += files

    @contextlib.contextmanager
    def registering(self, key: str, words: int) -> Iterator[bool]:
        """Count a model, while it is registered under this key; one that is there already is not counted again. Yields
        whether it is new. `words`: bytes of its description and tags. Raises TooMuch, OSError, StateError.
        """
        job, limits = self._job, self._limits
        with job.lock:
            models = self._stock().models
            if key not in models:
                for name, found, most in (
                    ("script_models_per_job", len(models) + 1, limits.script_models_per_job),
                    ("script_words_bytes_per_job", sum(models.values()) + words, limits.script_words_bytes_per_job),
                ):
                    if found > most:
                        what = "versions of models" if "models" in name else "bytes of descriptions and tags of models"
                        raise TooMuch(
                            f"The scripts of this job register more than {most:,} {what}, which is the master's limit "
                            f"{name}. Register fewer, or with fewer words; or {how_to_raise(name)}."
                        )
            yield key not in models
            models[key] = words

    def _stock(self) -> _Stock:
        return self._job.stock if self._job.stock is not None else self._measured_again()

    def _measured_again(self) -> _Stock:
        self._job.stock = stock = self._measure()
        return stock


class _Stock:
    """What is kept of what the scripts of one job have handed in."""

    def __init__(self, sizes: Iterable[int], models: dict[str, int]) -> None:
        """`sizes`: of its files, in bytes. `models`: those that they have registered, by key, with the bytes of their
        words.
        """
        self.bytes = self.files = 0
        for size in sizes:
            self.bytes += size
            self.files += 1
        self.models = models


class _JobStock:
    """What the scripts of one job have handed in, and hand in now."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.stock: _Stock | None = None
        """None before it is measured."""
        self.calls: set[Taken] = set()

    def bytes_with(self, stock: _Stock) -> int:
        """The bytes that are kept, with those that arrive."""
        return stock.bytes + sum(taken.pending for taken in self.calls)

    def files_with(self, stock: _Stock) -> int:
        """The files that are kept, with those that arrive."""
        return stock.files + sum(taken.pending_files for taken in self.calls)


class KeptFiles:
    """One call: its files arrive one after the other. Blocks on the disk; used by one thread at a time."""

    def __init__(self, root: Path, taken: Taken, *, in_place: bool) -> None:
        """`taken`: counts its bytes. `in_place`: each file gets its name when it is whole; otherwise `root` is a folder
        of this call.
        """
        self.root = root
        """The folder that names are below."""
        self._in_place = in_place
        self.taken = taken
        self._size = 0
        self._is_new = True
        self._descriptor = -1
        self._partial = self._target = root
        self._digest = hashlib.sha256()
        self.digests: dict[str, str] = {}
        """The sha256 of each file that is whole, by its name."""
        self._name = ""

    def begin(self, name: str) -> None:
        """A file follows; the one before is whole. Raises FileRefused, OSError."""
        self.end()
        self._target = self.root.joinpath(*parts_of(name))
        # One with a name that is there takes its place.
        self._is_new = not (self._in_place and self._target.exists())
        if self._is_new:
            self.taken.add_file()
        make_durable(self._target.parent)
        beside = self._target.with_name(f".{secrets.token_hex(8)}{_PARTIAL}") if self._in_place else self._target
        self._descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._partial, self._name, self._digest, self._size = beside, name, hashlib.sha256(), 0

    def write(self, chunk: bytes) -> None:
        """Append to the file. Raises FileRefused, OSError."""
        if self._descriptor < 0:
            raise FileRefused("The bytes belong to no file: a name comes first.")
        self.taken.add(len(chunk))
        self._size += len(chunk)
        rest = memoryview(chunk)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self._digest.update(chunk)

    def end(self) -> None:
        """The last file is whole: it is on the disk now. Raises OSError."""
        if self._descriptor < 0:
            return
        reach("script_files.written")
        if self._in_place:
            put_in_place(self._partial, self._target, self._descriptor)
            self.taken.settle(self._size, int(self._is_new))
        else:
            os.fsync(self._descriptor)
        self._close()
        self.digests[self._name] = self._digest.hexdigest()

    def drop(self) -> None:
        """Remove the file that is not whole, if there is one."""
        if self._descriptor >= 0:
            self._close()
            with contextlib.suppress(OSError):
                self._partial.unlink()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


class ScriptFiles:
    """The files of runs, and the models that scripts register. Blocks on the disk; any thread may call it."""

    def __init__(self, models: Path, assets: Assets, places: Datastores, limits: Limits) -> None:
        """`models`: the folder that `MODELS` is in, which all nodes see."""
        self._models = models / MODELS
        self._assets = assets
        self._places = places
        self._limits = limits
        self._jobs: dict[str, _JobStock] = {}
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def _taking(self, run: ScriptRun) -> Iterator[Taken]:
        """Count the bytes of a call."""
        with self._lock:
            # Those of jobs at which nothing arrives are measured again.
            while len(self._jobs) >= _JOBS_COUNTED and (idle := self._idle_job()) is not None:
                del self._jobs[idle]
            job = self._jobs.setdefault(run.job_id, _JobStock())
            taken = Taken(job, self._limits, lambda: self._measured(run))
            job.calls.add(taken)
        try:
            yield taken
        finally:
            with job.lock:
                job.calls.discard(taken)

    def _idle_job(self) -> str | None:
        return next((job_id for job_id, job in self._jobs.items() if not job.calls), None)

    def _measured(self, run: ScriptRun) -> _Stock:
        """What the scripts of a job have handed in. Raises OSError, StateError."""
        logs = run.job_logs
        files = [*_files_below(logs / FILES)]
        for step in logs.iterdir() if logs.is_dir() else ():
            files += _files_below(step / FILES)
        models = self._assets.models_of(run.job_id)
        contents = {Path(row.path).parent for row in models}
        files += [file for content in contents if content.parent == self._models for file in _files_below(content)]
        return _Stock(
            (file.lstat().st_size for file in files),
            {row.output_name: len(row.description.encode()) + len(row.tags) for row in models},
        )

    @contextlib.contextmanager
    def keeping(self, run: ScriptRun) -> Iterator[KeptFiles]:
        """Take files of a run: each has its name as soon as it is whole."""
        with self._taking(run) as taken:
            kept = KeptFiles(run.files, taken, in_place=True)
            try:
                yield kept
            finally:
                kept.drop()

    @contextlib.contextmanager
    def model_content(self, run: ScriptRun, wanted: pb.Asset) -> Iterator[KeptFiles]:
        """Take the files of a model; what `register` does not take is removed. Raises AssetRefused for a model that
        cannot be registered, OSError.
        """
        self._assets.check_model(_completed(wanted))
        if self._models.is_symlink():
            raise OSError(errno.ELOOP, f"{self._models} is a link; a master keeps no models behind links")
        make_durable(self._models)
        self._remove_leftovers()
        partial = self._models / f".partial-{secrets.token_hex(8)}"
        partial.mkdir(0o755)
        with self._taking(run) as taken:
            kept = KeptFiles(partial, taken, in_place=False)
            try:
                yield kept
            finally:
                kept.drop()
                _remove(partial)

    def copy(self, run: ScriptRun, path: str, kept: KeptFiles) -> None:
        """Hand in a file or folder of a run as the content of a model. Raises FileRefused, OSError."""
        source = run.files.joinpath(*parts_of(path))
        if source.is_file():
            found = [("", source)]
        else:
            found = sorted((file.relative_to(source).as_posix(), file) for file in _files_below(source))
        if not found:
            raise FileUnknown(f"The run has no file or folder {path!r}. Its files: {self._named(run)}.")
        for name, file in found:
            kept.begin(f"{source.name}/{name}".rstrip("/"))
            with file.open("rb") as content:
                while chunk := content.read(_CHUNK):
                    kept.write(chunk)

    def register(self, run: ScriptRun, wanted: pb.Asset, kept: KeptFiles) -> AssetRow:
        """Register what was handed in as a model. Raises AssetRefused, FileRefused, OSError, StateError."""
        kept.end()
        roots = {name.partition("/")[0] for name in kept.digests}
        if len(roots) != 1:
            raise FileRefused("A model is one file or one folder with files in it.")
        listed = "".join(f"{digest} {name}\n" for name, digest in sorted(kept.digests.items()))
        digest = hashlib.sha256(listed.encode()).hexdigest()
        words = json.dumps([wanted.description, sorted(wanted.tags.items()), wanted.type])
        key = f"{wanted.name}/{digest}{crc32(words.encode()):08x}"
        tags = self._assets.check_model(_completed(wanted))
        with kept.taken.registering(key, len(wanted.description.encode()) + len(tags)) as is_new:
            if is_new:
                # Before its content has a place: what is refused leaves nothing.
                self._assets.need_room(pb.ASSET_KIND_MODEL, run.project)
            content = self._place_content(digest, kept) / roots.pop()
            model = _completed(wanted)
            model.path, model.is_file = str(content), content.is_file()
            return self._assets.register_model(model, run.step_id, run.job_id, run.step_name, key, run.project)

    def _place_content(self, digest: str, kept: KeptFiles) -> Path:
        """Have the content of a model where all nodes see it; return its folder."""
        place = self._models / digest
        if not place.is_dir():
            for folder in reversed([folder for folder, _, _ in walk(kept.root)]):
                sync_folder(folder)
            try:
                kept.root.rename(place)
                kept.taken.settle(kept.taken.pending, kept.taken.pending_files)
            except OSError as error:
                # Another call was faster: the same digest is the same content.
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            sync_folder(self._models)
        reach("script_files.content")
        return place

    def models(self, name: str, most: int) -> list[AssetRow]:
        """All versions of a model, or the newest of each; the newest first. Raises StateError."""
        return [row for _, row in self._assets.page(pb.ASSET_KIND_MODEL, name, most, None)]

    def data(self, name: str, version: str) -> AssetRow:
        """A data asset; without `version`, the latest. Raises AssetRefused, UnknownDatastore, StateError."""
        found = self._assets.find(pb.ASSET_KIND_DATA, name, version)
        return found._replace(path=self._places.resolve(found.path))

    @property
    def datastores(self) -> dict[str, str]:
        """The place of each datastore, by name."""
        return self._places.places

    def names(self, run: ScriptRun) -> list[str]:
        """The names of the files of a run, sorted."""
        return sorted(file.relative_to(run.files).as_posix() for file in _files_below(run.files))

    def path(self, run: ScriptRun, name: str) -> Path:
        """A file of a run. Raises FileRefused."""
        found = run.files.joinpath(*parts_of(name))
        if not found.is_file():
            raise FileUnknown(f"The run has no file {name!r}. Its files: {self._named(run)}.")
        return found

    def _named(self, run: ScriptRun) -> str:
        names = self.names(run)
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        return ", ".join(names[:20]) + more or "none"

    def _remove_leftovers(self) -> None:
        for partial in self._models.glob(".partial-*"):
            with contextlib.suppress(OSError):
                if time.time() - partial.stat().st_mtime > _LEFT_S:
                    _remove(partial)


def parts_of(name: str) -> list[str]:
    """The parts of a file's name. They come from scripts: nothing leads out. Raises FileRefused."""
    parts = name.split("/")
    if (
        len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX
        or len(parts) > _PARTS_MAX
        or any(
            part in ("", ".", "..") or len(part.encode("utf-8", "surrogatepass")) > _PART_BYTES_MAX for part in parts
        )
        or "\0" in name
        or name.endswith(_PARTIAL)
    ):
        raise FileRefused(
            f"{name[:200]!r} is not a name for a file of a run: use a relative path such as outputs/model.pkl, of at "
            f"most {NAME_BYTES_MAX:,} bytes and {_PARTS_MAX} parts, without `.` and `..`."
        )
    return parts


def _completed(wanted: pb.Asset) -> pb.Asset:
    model = pb.Asset(kind=pb.ASSET_KIND_MODEL, type="custom_model")
    model.MergeFrom(wanted)
    return model


def _remove(folder: Path) -> None:
    discard_tree(folder)


def _files_below(root: Path) -> Iterator[Path]:
    for folder, _, names in walk(root):
        yield from (Path(folder, name) for name in names if not name.endswith(_PARTIAL))
