"""A client of the private master of a state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.embedded.session import Session
    from windrow.sdk.client import Client
    from windrow.spec.assets import AssetLookup

PATIENCE_S = 120.0
"""A private master that dies is started again: only its supervisor (`Connection.why_gone`) ends the waiting earlier."""


def connect(session: Session) -> Client:
    """A client of an open session; waits until its master serves."""
    # All of it while the master still imports its own: nothing is left to import between its first word and the job.
    import windrow.transfer.code_archive
    import windrow.transfer.upload  # noqa: F401
    from windrow.sdk.client import Client

    client = Client(session.wait_ready(), patience_s=PATIENCE_S)
    client.connection.why_gone = session.failure
    return client


class SessionAssets:
    """The registry of a state folder, while a job file is read: opened when the file names the first asset.

    `session`: gives the open state folder. Close it.
    """

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session
        self._client: Client | None = None

    def open(self) -> AssetLookup:
        """Waits until the master serves. Raises what `connect` raises."""
        self._client = connect(self._session())
        return self._client.registry.lookup()

    def close(self) -> None:
        """Repeatable."""
        if self._client is not None:
            self._client.close()
            self._client = None
