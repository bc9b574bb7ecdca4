"""Connections to a master over TLS that speak HTTP/2 as they like: half of it, slowly, or with an end in the middle."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct

from served_tls import SecureMaster

from benchmarks.flooding import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, frame, headers

INITIAL_WINDOW_SIZE = 4
SOCKET_S = 90.0


class RawConnection:
    """One connection with one call."""

    def __init__(self, master: SecureMaster, window: int = 65_535) -> None:
        """`window`: bytes of a stream that the master may send before this side has taken them."""
        context = ssl.create_default_context(cadata=master.ca)
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection(("127.0.0.1", int(master.port)), timeout=SOCKET_S)
        self._socket = context.wrap_socket(plain, server_hostname="localhost")
        self.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window)))

    def send(self, data: bytes) -> None:
        """Raises OSError."""
        self._socket.sendall(data)

    def call(self, path: str, metadata: list[tuple[str, str]], message: bytes, *, ends: bool) -> None:
        """Begin a call with one message. `ends`: there are no more."""
        self.send(
            frame(HEADERS, END_HEADERS, 1, headers(path, tuple(metadata)))
            + frame(DATA, END_STREAM if ends else 0, 1, b"\0" + struct.pack(">I", len(message)) + message)
        )

    def read(self) -> bytes:
        """What has come; empty at the end. Raises OSError."""
        return self._socket.recv(1 << 16)

    def begins(self, within_s: float = 0.05) -> None:
        """Read until the answer begins; of those that begin late, nothing."""
        self._socket.settimeout(within_s)
        read, at = b"", 0
        with contextlib.suppress(TimeoutError):
            while data := self.read():
                read += data
                while at + 9 <= len(read):
                    if read[at + 3] == HEADERS:
                        return
                    at += 9 + int.from_bytes(read[at : at + 3], "big")

    def cancel(self) -> None:
        """End the call, and keep the connection."""
        self.send(frame(RST_STREAM, 0, 1, struct.pack(">I", 8)))

    def half_close(self) -> None:
        """Say that nothing more comes, by the connection itself."""
        self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """Be gone without a word of TLS: a reset, where anything was unread."""
        with contextlib.suppress(OSError):  # it may be gone already
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()
