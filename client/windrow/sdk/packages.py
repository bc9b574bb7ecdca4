"""What the master keeps as packages, archives of files under names: published pipelines, environments, components."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.common.removal import discard_tree, temporary_tree
from windrow.errors import TransferFailed, UsageError
from windrow.sdk.submission import pack_folder
from windrow.spec.reading.context import Context
from windrow.spec.reading.nodes import Mapping as MappingNode
from windrow.spec.writing.package import Package, component_package, environment_package

if TYPE_CHECKING:
    from typing import BinaryIO

    from windrow.sdk.asset import Asset
    from windrow.sdk.client import Client
    from windrow.spec.naming.assets import FoundAsset
    from windrow.transfer.code_archive import CodeArchive

FOLDER = "published"
"""In a state folder: the packages that its jobs used."""
DIGEST_SHOWN = 12
KEEP = ".keep"
"""In an empty code folder: archives have no folders."""


def register_environment(client: Client, node: MappingNode, asset: Asset) -> Asset:
    """Keep an environment with the master. `node`: as in its file. Raises windrow.spec.JobFileError, RequestRefused
    (ASSET_EXISTS, ASSET_INVALID).
    """
    return _register(client, node, asset, environment_package)


def register_component(client: Client, node: MappingNode, asset: Asset) -> Asset:
    """Keep a component with the master, with its code and all files that it names. Raises as `register_environment`
    does, and UsageError for code that cannot be packed.
    """
    return _register(client, node, asset, component_package)


def _register(
    client: Client, node: MappingNode, asset: Asset, package_of: Callable[[MappingNode, Context], Package]
) -> Asset:
    embedded = client.master().embedded
    context = Context(node.place.source, embedded=embedded, assets=client.asset_lookup)
    package = package_of(node, context)
    context.problems.raise_errors()
    return register(client, package, asset, pack_folder)


def register(
    client: Client, package: Package, asset: Asset, pack_code: Callable[[str, BinaryIO], CodeArchive]
) -> Asset:
    """Keep a package with the master. `pack_code`: packs a code folder into a file."""
    from windrow.transfer.code_archive import pack
    from windrow.transfer.upload import FileSource, upload_artifact

    with temporary_tree("windrow-package-") as folder:
        for name, text in package.files.items():
            place = Path(folder, name)
            place.parent.mkdir(exist_ok=True)
            place.write_text(text, "utf-8")
        for code, name in package.code.items():
            _copy_code(functools.partial(pack_code, code), Path(folder, name))
        with tempfile.TemporaryFile() as archive:
            packed = pack(folder, archive)
            upload_artifact(client.connection, packed.digest, FileSource(archive))
    return client.registry.create(asset._replace(path=packed.digest))


def fetch(client: Client, asset: Asset | FoundAsset, folder: str | os.PathLike[str]) -> Path:
    """Unpack a package below a folder, unless it is there; return its own folder. Raises TransferFailed, OSError."""
    from windrow.common.archives import ArchiveError, unpack_code

    place = Path(folder, f"{asset.name}-{asset.version}-{asset.path[:DIGEST_SHOWN]}")
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with temporary_tree(".windrow-partial-", place.parent) as partial:
            archive = Path(partial, "archive")
            client.download_code(asset.path, archive)
            with archive.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != asset.path:
                raise TransferFailed(
                    f"The {asset.kind} {asset.name}:{asset.version} was damaged on its way from the master: its digest "
                    f"is {digest}, not {asset.path}. Repeat the command."
                )
            try:
                unpack_code(archive, Path(partial, "content"))
            except ArchiveError as error:
                raise TransferFailed(
                    f"The {asset.kind} {asset.name}:{asset.version} cannot be unpacked: {error} Windrow makes no such "
                    "archive: do not use it, and ask whoever registered it."
                ) from error
            try:
                Path(partial, "content").rename(place)
            except OSError:
                if not place.exists():  # another process may have been faster
                    raise
    return place


def folder_of(client: Client, asset: Asset | FoundAsset, state: str | os.PathLike[str] | None) -> str:
    """The folder of a package on this machine: below the state folder of runs on this machine, where it stays because a
    run may be continued; without one, in a folder that lasts as long as this process. Raises as `fetch` does.
    """
    try:
        return str(fetch(client, asset, Path(_process_folder()) if state is None else Path(state, FOLDER)))
    except OSError as error:
        place = error.filename or state or tempfile.gettempdir()
        raise UsageError(
            f"The {asset.kind} {asset.name}:{asset.version} cannot be unpacked at {place}: {error.strerror}. Let your "
            "user write there, or choose another place (--state DIR; without a state folder, TMPDIR)."
        ) from error


@functools.cache
def _process_folder() -> str:
    folder = tempfile.mkdtemp(prefix="windrow-packages-")
    atexit.register(discard_tree, folder)
    return folder


def _copy_code(pack: Callable[[BinaryIO], CodeArchive], place: Path) -> None:
    """Copy what belongs to a code folder."""
    from windrow.common.archives import unpack_code

    with tempfile.NamedTemporaryFile() as archive:
        packed = pack(archive)  # type: ignore[arg-type]
        archive.flush()
        unpack_code(archive.name, place)
    if not packed.file_count:
        (place / KEEP).touch()
