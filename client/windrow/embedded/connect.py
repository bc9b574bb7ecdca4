"""A client of the private master of a state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.client import Client
    from windrow.embedded.session import Session

PATIENCE_S = 120.0
"""A private master that dies is started again: only its supervisor (`Connection.why_gone`) ends the waiting earlier."""


def connect(session: Session) -> Client:
    """A client of an open session; waits until its master serves."""
    # All of it while the master still imports its own: nothing is left to import between its first word and the job.
    import windrow.code_archive
    import windrow.transfer  # noqa: F401
    from windrow.client import Client

    client = Client(session.wait_ready(), patience_s=PATIENCE_S)
    client.connection.why_gone = session.failure
    return client
