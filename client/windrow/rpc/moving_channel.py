"""A channel that can be moved to another master. Stubs, and calls that are retried, survive the move."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc

_Make = Callable[[grpc.Channel], Any]


class MovingChannel(grpc.Channel):
    """Sends each call through the current channel. Any number of threads may share it."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._closed = False
        self._changing = threading.Lock()

    def move(self, channel: grpc.Channel) -> None:
        """Send calls through this channel from now on. Calls on the former one end."""
        with self._changing:
            former, self._channel = (channel, self._channel) if self._closed else (self._channel, channel)
            former.close()

    def is_at(self, channel: grpc.Channel) -> bool:
        """Whether this is the current channel."""
        return self._channel is channel

    def method(self, make: _Make) -> tuple[grpc.Channel, Any]:
        """The current channel, and a method made of it. Raises ValueError if it is closed, as gRPC does."""
        # A method that is made of a closed channel crashes the interpreter (seen with grpcio 1.85).
        with self._changing:
            if self._closed:
                raise ValueError("Cannot invoke RPC on closed channel!")
            return self._channel, make(self._channel)

    def unary_unary(self, *args: Any, **options: Any) -> Any:
        """The same as for a gRPC channel."""
        return _Method(self, lambda channel: channel.unary_unary(*args, **options))

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        """The same as for a gRPC channel."""
        return _Method(self, lambda channel: channel.unary_stream(*args, **options))

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        """The same as for a gRPC channel."""
        return _Method(self, lambda channel: channel.stream_unary(*args, **options))

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        """The same as for a gRPC channel."""
        return _Method(self, lambda channel: channel.stream_stream(*args, **options))

    def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
        """The same as for a gRPC channel, on the current channel."""
        self._channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Any) -> None:
        """The same as for a gRPC channel, on the current channel."""
        self._channel.unsubscribe(callback)

    def close(self) -> None:
        """Close the current channel."""
        with self._changing:
            self._closed = True
            self._channel.close()

    def __enter__(self) -> MovingChannel:
        """Return itself."""
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Close the channel."""
        self.close()


class _Method:
    """A method of a stub, made again after each move of the channel."""

    def __init__(self, owner: MovingChannel, make: _Make) -> None:
        self._owner = owner
        self._make = make
        self._made = owner.method(make)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._on_current(lambda method: method(*args, **options))

    def future(self, *args: Any, **options: Any) -> Any:
        return self._on_current(lambda method: method.future(*args, **options))

    def with_call(self, *args: Any, **options: Any) -> Any:
        return self._on_current(lambda method: method.with_call(*args, **options))

    def _on_current(self, invoke: Callable[[Any], Any]) -> Any:
        while True:
            channel, method = self._made
            if self._owner.is_at(channel):
                try:
                    return invoke(method)
                except ValueError:
                    if self._owner.is_at(channel):
                        raise
                    # The channel has moved meanwhile, and this one is closed.
            self._made = self._owner.method(self._make)
