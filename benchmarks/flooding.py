"""Strangers: connections to a master without a token, which ask again and again, and hold streams open.

    python -m benchmarks.flooding 127.0.0.1:8470 --streams 3000 --rate 10000

It speaks just enough HTTP/2 to send the same bytes again and again, so that it costs the machine little. It ends with
its standard input, and prints what it has reached: a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from functools import partial

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK, END_STREAM, END_HEADERS = 1, 1, 4
EMPTY_MESSAGE = b"\0\0\0\0\0"
CALLS_A_CONNECTION = 50
"""Unanswered ones, at most."""
STREAMS_A_CONNECTION = 100


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def headers(path: str, metadata: tuple[tuple[str, str], ...] = ()) -> bytes:
    """The header block of a gRPC call: literals that nobody has to remember."""
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "master"),
        ("content-type", "application/grpc"), ("te", "trailers"), *metadata,
    ]  # fmt: skip
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(value: str) -> bytes:
    assert len(value) < 127
    return bytes((len(value),)) + value.encode()


class Connection:
    """One connection, and the calls on it."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self.open: set[int] = set()
        """Calls without an end."""
        self.connect()

    def connect(self) -> None:
        """Begin, or begin anew: all calls are gone. Raises OSError."""
        self.socket = socket.create_connection(self._address, timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0))
        self.socket.setblocking(False)
        self.open.clear()
        self._next = 1
        self._read = b""
        self._unsent = b""

    def call(self, block: bytes, count: int, *, ends: bool = True) -> None:
        """Make calls with an empty request. Raises OSError."""
        sent = []
        for _ in range(count):
            stream, self._next = self._next, self._next + 2
            self.open.add(stream)
            sent.append(frame(HEADERS, END_HEADERS, stream, block))
            sent.append(frame(DATA, END_STREAM if ends else 0, stream, EMPTY_MESSAGE))
        self._send(b"".join(sent))

    def _send(self, data: bytes) -> None:
        self._unsent += data
        try:
            self._unsent = self._unsent[self.socket.send(self._unsent) :]
        except BlockingIOError:
            return

    def take(self) -> int:
        """Read what has come; return how many calls have ended by it. Raises OSError; EOFError: the other side has
        ended the connection."""
        if self._unsent:
            self._send(b"")
        try:
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return 0
        if not data:
            raise EOFError
        data, at, ended, back = self._read + data, 0, 0, []
        while at + 9 <= len(data):
            length = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if at + 9 + length > len(data):
                break
            kind, flags = data[at + 3], data[at + 4]
            stream = int.from_bytes(data[at + 5 : at + 9], "big")
            if kind == RST_STREAM or (kind in (HEADERS, DATA) and flags & END_STREAM):
                if stream in self.open:
                    self.open.discard(stream)
                    ended += 1
            elif kind == SETTINGS and not flags & ACK:
                back.append(frame(SETTINGS, ACK, 0))
            elif kind == PING and not flags & ACK:
                back.append(frame(PING, ACK, 0, data[at + 9 : at + 17]))
            elif kind == GOAWAY:
                raise EOFError
            at += 9 + length
        self._read = data[at:]
        if back:
            self._send(b"".join(back))
        return ended


class Flood:
    """Calls at a rate, and streams that stay open as far as the master lets them."""

    def __init__(self, address: tuple[str, int], streams: int, rate: float) -> None:
        self._rate = rate
        self._selector = selectors.DefaultSelector()
        self.refused = 0
        self.connections_closed = 0
        self._stream_block = headers("/grpc.health.v1.Health/Watch")
        self._call_block = headers("/windrow.rpc.v1.JobService/GetMaster", (("authorization", "Bearer none"),))
        self._streaming = [Connection(address) for _ in range(-(-streams // STREAMS_A_CONNECTION))]
        for number, connection in enumerate(self._streaming):
            left = min(STREAMS_A_CONNECTION, streams - number * STREAMS_A_CONNECTION)
            connection.call(self._stream_block, left)
        self._calling = [Connection(address) for _ in range(40)]
        for connection in (*self._streaming, *self._calling):
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)

    @property
    def streams(self) -> int:
        """Those that are open."""
        return sum(len(connection.open) for connection in self._streaming)

    def run(self, ends: Callable[[], bool]) -> None:
        """Go on until it is told to end."""
        begun, asked = time.monotonic(), 0
        while not ends():
            due = int((time.monotonic() - begun) * self._rate) - asked
            for connection in self._calling:
                count = min(max(0, due), CALLS_A_CONNECTION - len(connection.open))
                if count > 0:
                    self._guarded(connection, partial(connection.call, self._call_block, count))
                    due -= count
                    asked += count
            # What could not be asked in time is not made up for.
            asked += max(0, due)
            for key, _ in self._selector.select(0.005):
                connection = key.data
                ended = self._guarded(connection, connection.take)
                if connection in self._calling:
                    self.refused += ended or 0

    def _guarded(self, connection: Connection, work: Callable[[], int | None]) -> int | None:
        """Do something with a connection; open it anew if it has ended."""
        try:
            return work()
        except (OSError, EOFError):
            self.connections_closed += 1
            self._selector.unregister(connection.socket)
            connection.socket.close()
            connection.connect()
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            if connection in self._streaming:
                connection.call(self._stream_block, STREAMS_A_CONNECTION)
            return None


def _is_told_to_end() -> bool:
    try:
        return os.read(sys.stdin.fileno(), 1) == b""
    except BlockingIOError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description="Flood a master with calls that it refuses.")
    parser.add_argument("address")
    parser.add_argument("--streams", type=int, default=3_000)
    parser.add_argument("--rate", type=float, default=10_000)
    options = parser.parse_args()
    host, _, port = options.address.rpartition(":")
    flood = Flood((host, int(port)), options.streams, options.rate)
    print(json.dumps({"ready": True}), flush=True)
    os.set_blocking(sys.stdin.fileno(), False)
    begun, cpu = time.monotonic(), time.process_time()
    flood.run(_is_told_to_end)
    took = time.monotonic() - begun
    reached = {
        "refused": flood.refused / took, "streams": flood.streams, "closed": flood.connections_closed,
        "processor": (time.process_time() - cpu) / took,
    }  # fmt: skip
    print(json.dumps(reached), flush=True)


if __name__ == "__main__":
    main()
