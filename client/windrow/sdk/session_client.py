"""Clients of an open session: of the private master that `windrow run` has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.embedded.session import Session
    from windrow.sdk.client import Client
    from windrow.spec.naming.assets import AssetLookup

PATIENCE_S = 120.0
"""A private master that dies is started again. Only its supervisor (`Connection.why_gone`) ends the wait earlier."""


def connect(session: Session) -> Client:
    """Make a client of an open session; waits until the master serves."""
    # Import everything while the master is still importing: nothing is left to import once it serves.
    import windrow.transfer.code_archive
    import windrow.transfer.data_in_code
    import windrow.transfer.upload  # noqa: F401
    from windrow.sdk.client import Client

    client = Client(session.wait_ready(), patience_s=PATIENCE_S)
    client.connection.why_gone = session.failure
    return client


class SessionAssets:
    """The registry of a state folder, opened when a job file names its first asset. `session` returns the open state
    folder. The caller closes it.
    """

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session
        self._client: Client | None = None

    def open(self) -> AssetLookup:
        """Open the registry; waits until the master serves. Raises what `connect` raises."""
        session = self._session()
        self._client = connect(session)
        return self._client.asset_lookup(session.folder)

    def close(self) -> None:
        """Close what was opened. May be called again."""
        if self._client is not None:
            self._client.close()
            self._client = None
