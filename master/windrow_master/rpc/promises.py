"""What clients have announced to upload and not sent yet: an announcement is a promise of room on the disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from windrow.rpc import errors

from windrow_master.files.artifacts import ArtifactError
from windrow_master.limits import Limits, how_to_raise


@dataclass(eq=False)
class Promise:
    """One upload under way."""

    client: str
    digest: str
    left: int
    """Bytes that have not arrived."""

    def keep(self, count: int) -> None:
        """Note that bytes have arrived."""
        self.left = max(0, self.left - count)


class Promises:
    """All uploads under way."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._made: set[Promise] = set()

    @contextmanager
    def made(self, client: str, digest: str, length: int) -> Iterator[Promise]:
        """Hold room for an upload. Raises ArtifactError if it would pass a limit."""
        promise = Promise(client, digest, max(0, length))
        own = [one for one in self._made if one.client == client]
        limits, everybody = self._limits, "of all clients"
        for name, most, found, whose in (
            ("uploads_per_client", limits.uploads_per_client, len(own) + 1, f"of {client}"),
            ("uploads", limits.uploads, len(self._made) + 1, everybody),
            ("upload_bytes_per_client", limits.upload_bytes_per_client, _bytes(own) + promise.left, f"of {client}"),
            ("upload_bytes", limits.upload_bytes, _bytes(self._made) + promise.left, everybody),
        ):
            if found > most:
                what = "bytes announced" if "bytes" in name else "uploads at a time"
                raise ArtifactError(
                    errors.LIMIT_REACHED,
                    f"With this upload there would be {found:,} {what} {whose}, and the limit {name} of this master is "
                    f"{most:,}. Try again when others have ended; or {how_to_raise(name)}.",
                )
        self._made.add(promise)
        try:
            yield promise
        finally:
            self._made.remove(promise)

    def bytes_of_others(self, promise: Promise) -> int:
        """What all other uploads still need."""
        return _bytes(self._made) - promise.left

    def digests(self) -> set[str]:
        """The digests of all uploads under way."""
        return {one.digest for one in self._made}


def _bytes(promises: Iterable[Promise]) -> int:
    return sum(one.left for one in promises)
