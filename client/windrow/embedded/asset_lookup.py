"""The registry of a state folder, while a job file is read: opened when the file names the first asset."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.client import Client
    from windrow.embedded.session import Session
    from windrow.spec.naming.assets import AssetLookup


class SessionAssets:
    """`session`: gives the open state folder. Close it."""

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session
        self._client: Client | None = None

    def open(self) -> AssetLookup:
        """Waits until the master serves. Raises what `connect` raises."""
        from windrow.embedded.connect import connect

        self._client = connect(self._session())
        return self._client.registry.lookup()

    def close(self) -> None:
        """Repeatable."""
        if self._client is not None:
            self._client.close()
            self._client = None
