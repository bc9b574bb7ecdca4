"""Data assets and models, names with versions for data; published pipelines, environments and components."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import NotFound, UsageError
from windrow.sdk.job import moment_of, told_name

if TYPE_CHECKING:
    from windrow.rpc.connection import Connection
    from windrow.rpc.v1 import asset_service_pb2 as pb
    from windrow.spec.naming.assets import AssetLookup, FoundAsset
    from windrow.transfer.local_data import OnUpload

KINDS = ("", "data", "model", "pipeline", "environment", "component")
"""By the numbers of windrow.rpc.v1.AssetKind."""
_EMPTY: Mapping[str, str] = MappingProxyType({})


class Asset(NamedTuple):
    """One version of a data asset, model, pipeline, environment or component (`kind`); it never changes.

    Not the base class of `windrow.ml`'s entities, which are written before they are registered.

    `path`: absolute on the machines of master and agents, or the address of a store or datastore; of a pipeline,
    environment or component, the digest of the archive that holds it. `job_id`, `step` and
    `output`: what has written it, if a job has.

    Example:
        with windrow.Client("127.0.0.1:8470") as client:
            asset = client.create_data("orders", "data/orders")
            print(asset.name, asset.version, asset.path)
    """

    kind: str
    name: str
    version: str
    type: str
    path: str
    is_file: bool = False
    description: str = ""
    tags: Mapping[str, str] = _EMPTY
    create_time: datetime | None = None
    job_id: str = ""
    step: str = ""
    output: str = ""

    @property
    def reference(self) -> str:
        """The name in a job file: `azureml:<name>:<version>`."""
        return f"azureml:{self.name}:{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON types, with times in ISO 8601."""
        made = self.create_time.isoformat() if self.create_time is not None else None
        return {**self._asdict(), "tags": dict(self.tags), "create_time": made}


class Registry:
    """The assets of one master, over a connection."""

    def __init__(self, connection: Connection) -> None:
        from windrow.rpc.v1 import asset_service_pb2_grpc

        self._connection = connection
        self._stub = asset_service_pb2_grpc.AssetServiceStub(connection.channel)

    def create(self, asset: Asset) -> Asset:
        """Register a version; an empty version means the next number. Raises RequestRefused (ASSET_EXISTS,
        ASSET_INVALID).
        """
        from windrow.rpc.v1 import asset_service_pb2 as pb

        message = pb.Asset(
            kind=_number(asset.kind),
            name=asset.name,
            version=asset.version,
            type=asset.type,
            path=asset.path,
            is_file=asset.is_file,
            description=asset.description,
            tags=asset.tags,
        )
        answer = self._connection.call(self._stub.CreateAsset, pb.CreateAssetRequest(asset=message))
        return asset_from_message(answer.asset)

    def get(self, kind: str, name: str, version: str | None = None) -> Asset:
        """Return one version; None means the latest. Raises NotFound."""
        from windrow.rpc.v1 import asset_service_pb2 as pb

        request = pb.GetAssetRequest(kind=_number(kind), name=name, version=version or "")
        return asset_from_message(self._connection.call(self._stub.GetAsset, request).asset)

    def list(self, kind: str, name: str = "") -> Iterator[Asset]:
        """Yield all versions of an asset (with an empty name, the latest of each asset), newest first, fetched a page
        at a time.
        """
        from windrow.rpc.v1 import asset_service_pb2 as pb

        request = pb.ListAssetsRequest(kind=_number(kind), name=name)
        for page in self._connection.pages(self._stub.ListAssets, request):
            yield from map(asset_from_message, page.assets)

    def lookup(self, folder: Callable[[FoundAsset], str]) -> AssetLookup:
        """Return what `windrow.spec.load_job` takes as `assets`. `folder`: as of `AssetLookup`."""
        from windrow.spec.naming.assets import AssetLookup

        return AssetLookup(self._find, self._names, self._versions, folder)

    def _find(self, kind: str, name: str, version: str | None) -> FoundAsset | None:
        from windrow.spec.naming.assets import FoundAsset

        try:
            found = self.get(kind, name, version)
        except NotFound:
            return None
        return FoundAsset(kind, found.name, found.version, found.type, found.path, found.is_file)

    def _names(self, kind: str) -> Collection[str]:
        return [asset.name for asset in self.list(kind)]

    def _versions(self, kind: str, name: str) -> Collection[str]:
        return [asset.version for asset in self.list(kind, name)]


def place_asset(
    connection: Connection,
    asset: Asset,
    folder: str,
    *,
    datastores: dict[str, str] | None,
    on_upload: OnUpload = lambda moment: None,
) -> Asset:
    """Return the asset with the path that it has on the master. A relative path is on this machine, below `folder`.
    `datastores`: of a served master, to which such data is uploaded like an input; None if the master is on this
    machine. Raises UsageError, WindrowError.
    """
    from windrow.spec.effective.job import DataInput
    from windrow.spec.naming.locations import absolute, elsewhere, parse_location, why_missing
    from windrow.storage.urls import BadUrl

    location = parse_location(asset.path)
    if location.kind in ("remote", "datastore"):
        try:
            return asset._replace(path=elsewhere(location, asset.path))
        except BadUrl as error:
            raise UsageError(f"path: {error}.") from error
    if location.kind != "local" or not location.value or "\0" in location.value:
        raise UsageError(
            f"path: {asset.path!r} is neither a path nor an address of a store (s3://, gs://, abfss://, https://) or "
            "datastore (azureml://datastores/NAME/paths/PATH)."
        )
    path = absolute(location.value, folder)
    if datastores is not None and os.path.isabs(location.value):  # noqa: PTH117  # text, which the master resolves
        return asset._replace(path=path)
    if not os.path.exists(path):  # noqa: PTH110
        raise UsageError(f"path: {asset.path} {why_missing(path)} ({path}).")
    if datastores is not None:
        from windrow.transfer.local_data import upload_path

        kind = asset.type if asset.type == "mltable" else "uri_folder"
        path = upload_path(connection, "path", DataInput(kind, "ro_mount", path), datastores, on_upload)
    return asset._replace(path=path)


def asset_from_message(message: pb.Asset) -> Asset:
    """Make an asset from its message. Raises TransferFailed for names that are none."""
    return Asset(
        kind=KINDS[message.kind] if message.kind < len(KINDS) else "unknown",
        name=told_name(message.name, "an asset"),
        version=told_name(message.version, "a version"),
        type=message.type,
        path=message.path,
        is_file=message.is_file,
        description=message.description,
        tags=dict(message.tags),
        create_time=moment_of(message, "create_time"),
        job_id=message.job_id,
        step=message.step_name,
        output=message.output_name,
    )


def _number(kind: str) -> Any:
    if kind not in KINDS[1:]:
        raise UsageError(f"The kind of an asset is {kind!r}; it must be one of {', '.join(KINDS[1:])}.")
    return KINDS.index(kind)
