"""A channel whose calls go to another master from one moment on: stubs, and calls to repeat, outlive the change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc

_Make = Callable[[grpc.Channel], Any]


class MovingChannel(grpc.Channel):
    """Sends each call through the channel of the moment. Safe for use by several threads."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel
        self._closed = False
        self._changing = threading.Lock()

    def move(self, channel: grpc.Channel) -> None:
        """Calls from now on go through this one; those that run on the former end."""
        with self._changing:
            former, self._channel = (channel, self._channel) if self._closed else (self._channel, channel)
            former.close()

    def is_at(self, channel: grpc.Channel) -> bool:
        """Whether that one is the channel of the moment."""
        return self._channel is channel

    def method(self, make: _Make) -> tuple[grpc.Channel, Any]:
        """The channel of the moment, and a method made of it. Raises ValueError on a closed one, as gRPC does."""
        # A method that is made of a closed channel crashes the interpreter (seen with grpcio 1.85).
        with self._changing:
            if self._closed:
                raise ValueError("Cannot invoke RPC on closed channel!")
            return self._channel, make(self._channel)

    def unary_unary(self, *args: Any, **options: Any) -> Any:
        """As gRPC's."""
        return _Method(self, lambda channel: channel.unary_unary(*args, **options))

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        """As gRPC's."""
        return _Method(self, lambda channel: channel.unary_stream(*args, **options))

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        """As gRPC's."""
        return _Method(self, lambda channel: channel.stream_unary(*args, **options))

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        """As gRPC's."""
        return _Method(self, lambda channel: channel.stream_stream(*args, **options))

    def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
        """As gRPC's; of the channel of this moment."""
        self._channel.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Any) -> None:
        """As gRPC's; of the channel of this moment."""
        self._channel.unsubscribe(callback)

    def close(self) -> None:
        """End the channel of the moment."""
        with self._changing:
            self._closed = True
            self._channel.close()

    def __enter__(self) -> MovingChannel:
        """Itself."""
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Close."""
        self.close()


class _Method:
    """A method of a stub, made anew where the channel has moved."""

    def __init__(self, owner: MovingChannel, make: _Make) -> None:
        self._owner = owner
        self._make = make
        self._made = owner.method(make)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._of_the_moment(lambda method: method(*args, **options))

    def future(self, *args: Any, **options: Any) -> Any:
        return self._of_the_moment(lambda method: method.future(*args, **options))

    def with_call(self, *args: Any, **options: Any) -> Any:
        return self._of_the_moment(lambda method: method.with_call(*args, **options))

    def _of_the_moment(self, invoke: Callable[[Any], Any]) -> Any:
        while True:
            channel, method = self._made
            if self._owner.is_at(channel):
                try:
                    return invoke(method)
                except ValueError:
                    if self._owner.is_at(channel):
                        raise
                    # It has moved meanwhile, and closed this one.
            self._made = self._owner.method(self._make)
