"""The registry of data assets, models, published pipelines, environments and components: checks what clients register,
and registers what steps write.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.rpc.v1 import asset_service_pb2 as pb
from windrow.spec.naming.assets import ASSET_NAME, is_asset_version
from windrow.spec.naming.locations import elsewhere, is_elsewhere, parse_location
from windrow.spec.settings.schema import DATA_TYPES, MODEL_TYPES
from windrow.storage.urls import BadUrl, is_remote

from windrow_master.core.ids import DEFAULT_PROJECT, StepId
from windrow_master.datastores import Datastores, UnknownDatastore
from windrow_master.files.artifacts import ArtifactFolder
from windrow_master.limits import Limits, how_to_raise
from windrow_master.roots import Roots
from windrow_master.store.errors import AssetExists, TooManyAssets
from windrow_master.store.protocol import StoreReader
from windrow_master.store.records import AssetLimits, AssetRow

if TYPE_CHECKING:
    from windrow.spec.effective.job import EffectiveStep

COMMANDS = {
    pb.ASSET_KIND_DATA: "data",
    pb.ASSET_KIND_MODEL: "model",
    pb.ASSET_KIND_PIPELINE: "pipeline",
    pb.ASSET_KIND_ENVIRONMENT: "environment",
    pb.ASSET_KIND_COMPONENT: "component",
}
WORDS = {**COMMANDS, pb.ASSET_KIND_DATA: "data asset"}
ARCHIVED = (pb.ASSET_KIND_PIPELINE, pb.ASSET_KIND_ENVIRONMENT, pb.ASSET_KIND_COMPONENT)
"""Kinds whose path is the digest of an archive."""
TYPES = {
    pb.ASSET_KIND_DATA: DATA_TYPES,
    pb.ASSET_KIND_MODEL: MODEL_TYPES,
    **dict.fromkeys(ARCHIVED, ("",)),
}
TEXT_MAX = 64 << 10
_PAGE = 200
_ANOTHER = "Give another version, or leave it out to get the next number."


class AssetRefused(Exception):
    """An asset cannot be registered, or does not exist; `reason` is an ErrorInfo reason of the protocol."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Assets:
    """One registry. Methods block on the disk; any thread may call them. All raise StateError."""

    def __init__(
        self,
        reader: StoreReader,
        record: Callable[[AssetRow, AssetLimits], AssetRow],
        places: Datastores,
        readable: Roots | None,
        artifacts: ArtifactFolder,
        limits: Limits,
    ) -> None:
        """`record`: Store.record_asset; `places`: resolves addresses of datastores; `readable`: where registered
        data must be; anywhere if None. `artifacts`: where the archives of pipelines are.
        """
        self._reader = reader
        self._record = record
        self._places = places
        self._readable = readable
        self._artifacts = artifacts
        self._most = AssetLimits(limits.assets_per_kind, limits.assets_per_project)

    def create(self, wanted: pb.Asset, project: str = DEFAULT_PROJECT) -> AssetRow:
        """Register an asset for a client of a project. Raises AssetRefused."""
        what, tags = _checked(wanted)
        is_archived = wanted.kind in ARCHIVED
        path, is_file = self._archive(wanted.path, what) if is_archived else self._place(wanted, what)
        row = AssetRow(
            wanted.kind,
            wanted.name,
            wanted.version,
            wanted.type,
            path,
            is_file,
            wanted.description,
            tags,
            time.time(),
            project=project,
        )
        try:
            return self._record(row, self._most)
        except AssetExists as error:
            raise AssetRefused("ASSET_EXISTS", f"{_exists(error.found)} {_ANOTHER}") from error
        except TooManyAssets as error:
            raise self._full(row.kind, row.project if error.of_project else None) from error

    def find(self, kind: int, name: str, version: str) -> AssetRow:
        """Return one version; an empty version means the latest. Raises AssetRefused."""
        found = self._reader.asset(kind, name, version or None)
        if found is None:
            what = WORDS.get(pb.AssetKind.ValueType(kind), "asset")
            command = COMMANDS.get(pb.AssetKind.ValueType(kind), "data")
            wanted = f"{name[:255]}:{version[:50]}" if version else name[:255]
            raise AssetRefused(
                "ASSET_UNKNOWN", f"There is no {what} {wanted} here. `windrow {command} list` names them."
            )
        return found

    def page(self, kind: int, name: str, size: int, before: int | None) -> list[tuple[int, AssetRow]]:
        """Return a page of assets, newest first, as `StoreReader.assets` does."""
        return self._reader.assets(kind, name, size, before)

    def models_of(self, job_id: str) -> list[AssetRow]:
        """The versions of models that scripts of a job have registered. Raises StateError."""
        kind = pb.ASSET_KIND_MODEL
        every = (row for newest in self._pages(kind, "") for row in self._pages(kind, newest.name))
        return [row for row in every if row.job_id == job_id]

    def _pages(self, kind: int, name: str) -> Iterator[AssetRow]:
        before: int | None = None
        while page := self._reader.assets(kind, name, _PAGE, before):
            yield from (row for _, row in page)
            before = page[-1][0]

    def refuse_taken(self, steps: Iterable[EffectiveStep]) -> None:
        """Raise AssetRefused if an output is to be registered as a version that exists. Called before any work is
        done for the output.
        """
        wanted: set[tuple[str, str]] = set()
        for step in steps:
            for name, output in step.outputs.items():
                if output.asset_name is None or output.asset_version is None:
                    continue
                key = (output.asset_name, output.asset_version)
                found = self._reader.asset(pb.ASSET_KIND_DATA, *key)
                if found is not None or key in wanted:
                    why = _exists(found) if found is not None else f"Two outputs would become {key[0]}:{key[1]}."
                    raise AssetRefused(
                        "ASSET_EXISTS",
                        f"Step {step.name!r}, output {name!r}: {why} {_ANOTHER}",
                    )
                wanted.add(key)

    def check_model(self, model: pb.Asset) -> bytes:
        """The tags of a model that a step hands in. Raises AssetRefused if it cannot be registered as that."""
        if model.kind != pb.ASSET_KIND_MODEL or model.version:
            raise AssetRefused(
                "ASSET_INVALID", "A script registers models, and each gets the next number as its version."
            )
        return _checked(model)[1]

    def register_model(
        self, model: pb.Asset, step_id: StepId, job_id: str, step_name: str, key: str, project: str
    ) -> AssetRow:
        """Register a model that a step has handed in, once for each `key`. Raises AssetRefused."""
        tags = self.check_model(model)
        row = AssetRow(
            model.kind,
            model.name,
            "",
            model.type,
            model.path,
            model.is_file,
            model.description,
            tags,
            time.time(),
            step_id,
            job_id,
            step_name,
            key,
            project,
        )
        try:
            return self._record(row, self._most)
        except TooManyAssets as error:
            raise self._full(row.kind, row.project if error.of_project else None) from error

    def need_room(self, kind: int, project: str) -> None:
        """Raise AssetRefused if a project can register no further asset of this kind."""
        if self._reader.has_assets(kind, self._most.of_project, project):
            raise self._full(kind, project)
        if self._reader.has_assets(kind, self._most.of_kind):
            raise self._full(kind)

    def _full(self, kind: int, project: str | None = None) -> AssetRefused:
        """`project`: the one that has as many as it may; None: all together have."""
        what = COMMANDS.get(pb.AssetKind.ValueType(kind), "asset")
        who, name, most = "This master", "assets_per_kind", self._most.of_kind
        if project is not None:
            who, name, most = f"The project {project!r}", "assets_per_project", self._most.of_project
        return AssetRefused(
            "LIMIT_REACHED",
            f"{who} has {most:,} versions of assets of the kind {what}, which is the limit {name} of this master, and "
            f"registers no more. To register more, {how_to_raise(name)}.",
        )

    def register(self, row: AssetRow) -> str:
        """Register what a step has written, once however often this is called. Returns a message about it, if there
        is one.
        """
        try:
            self._record(row, self._most)
        except AssetExists as error:
            return f"The output {row.output_name} is not registered: {_exists(error.found)}"
        except TooManyAssets as error:
            full = self._full(row.kind, row.project if error.of_project else None)
            return f"The output {row.output_name} is not registered: {full}"
        return ""

    def _archive(self, digest: str, what: str) -> tuple[str, bool]:
        """The digest of an archive, which is a file. Raises AssetRefused."""
        if self._artifacts.path(digest) is None:
            raise AssetRefused(
                "ASSET_INVALID",
                f"The {what} names the archive {digest[:80]!r}, which this master does not have. Upload it first.",
            )
        return digest, True

    def _place(self, wanted: pb.Asset, what: str) -> tuple[str, bool]:
        """Where the data is, and whether it is a file. Raises AssetRefused."""
        path = wanted.path
        if "\0" in path or not path or not _is_unicode(path):
            raise AssetRefused("ASSET_INVALID", f"The {what} has no path that can be kept: {path[:200]!r}.")
        if is_elsewhere(path):
            try:
                path = elsewhere(parse_location(path), path)
                resolved = self._places.resolve(path)
            except (BadUrl, UnknownDatastore) as error:
                raise AssetRefused("ASSET_INVALID", f"{error}.") from error
        elif path.startswith("/"):
            path = resolved = os.path.normpath(path)
        else:
            raise AssetRefused(
                "ASSET_INVALID", f"{path[:200]!r} is neither an absolute path nor an address of a store or datastore."
            )
        if self._readable is not None and not self._readable.hold(resolved):
            raise AssetRefused(
                "ASSET_INVALID",
                f"{path} is outside the datastores of this master ({self._readable}). Put the data there, start "
                f"the master with --datastore NAME={path}, or give a relative path: data on the client's "
                "machine is uploaded.",
            )
        if is_remote(resolved):
            return path, wanted.is_file or wanted.type == "uri_file"
        if not Path(resolved).exists():
            raise AssetRefused("ASSET_INVALID", f"{resolved} does not exist on the master's machine.")
        is_file = Path(resolved).is_file()
        if wanted.type in ("uri_file", "uri_folder") and is_file != (wanted.type == "uri_file"):
            there = "a file" if is_file else "a folder"
            raise AssetRefused("ASSET_INVALID", f"{resolved} is {there}, but the type is {wanted.type}.")
        return path, is_file


def rows_of_outputs(
    step: EffectiveStep, step_id: StepId, job_id: str, project: str, places: dict[str, str], now: float
) -> tuple[AssetRow, ...]:
    """The assets that a step's outputs become when it is done. `places`: where the outputs are, by name."""
    return tuple(
        AssetRow(
            kind=int(pb.ASSET_KIND_DATA),
            name=output.asset_name,
            version=output.asset_version or "",
            type=output.type,
            path=places[name],
            is_file=output.type == "uri_file",
            description=f"Output {name} of step {step.name} of job {job_id}",
            tags=b"{}",
            create_time=now,
            step_id=step_id,
            job_id=job_id,
            step_name=step.name,
            output_name=name,
            project=project,
        )
        for name, output in step.outputs.items()
        if output.asset_name is not None and name in places
    )


def message_of(row: AssetRow) -> pb.Asset:
    """Make the protocol's message of an asset."""
    tags: dict[str, Any] = json.loads(row.tags)
    message = pb.Asset(
        kind=row.kind,  # type: ignore[arg-type]
        name=row.name,
        version=row.version,
        type=row.type,
        path=row.path,
        is_file=bool(row.is_file),
        description=row.description,
        tags={str(key): str(value) for key, value in tags.items()},
        job_id=row.job_id,
        step_name=row.step_name,
        # Of a model that a script registered, there is a key in its place.
        output_name=row.output_name if row.kind != pb.ASSET_KIND_MODEL else "",
    )
    message.create_time.FromNanoseconds(int(row.create_time * 1e9))
    return message


def _checked(wanted: pb.Asset) -> tuple[str, bytes]:
    """What an asset is in words, and its tags. Raises AssetRefused for words that cannot be registered."""
    what = WORDS.get(wanted.kind)
    if what is None:
        raise AssetRefused("ASSET_INVALID", f"The asset has no kind: one of {', '.join(COMMANDS.values())}.")
    if not ASSET_NAME.fullmatch(wanted.name):
        raise AssetRefused(
            "ASSET_INVALID",
            f"{wanted.name[:80]!r} is not a valid name of a {what}: use at most 255 ASCII letters, digits "
            "and _ . -, beginning with a letter or digit.",
        )
    if wanted.version and not is_asset_version(wanted.version):
        raise AssetRefused(
            "ASSET_INVALID",
            f"{wanted.version[:80]!r} is not a valid version of a {what}: use at most 50 ASCII letters, "
            "digits and _ . -, but not the word latest. Without a version, it gets the next number.",
        )
    types = TYPES[wanted.kind]
    if wanted.type not in types:
        raise AssetRefused(
            "ASSET_INVALID", f"{wanted.type!r} is not a type of a {what}: use one of {', '.join(types)}."
        )
    tags = json.dumps(dict(wanted.tags), sort_keys=True).encode()
    if len(tags) + len(wanted.description) > TEXT_MAX:
        raise AssetRefused(
            "ASSET_INVALID", (f"The description and the tags together are longer than {TEXT_MAX >> 10} KiB.")
        )
    return what, tags


def _exists(found: AssetRow) -> str:
    what = WORDS.get(pb.AssetKind.ValueType(found.kind), "asset")
    where = "" if found.kind in ARCHIVED else f" ({found.type} at {found.path})"
    return f"The {what} {found.name}:{found.version} already exists{where}, and a version cannot be changed."


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
