"""A client's connection to a master: a channel, and calls that survive a short absence of the master."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import grpc

from windrow.errors import MasterUnreachable, MasterUntrusted, NotFound, RequestRefused, WindrowError
from windrow.rpc import errors, session_key
from windrow.rpc.address import grpc_target, stays_here
from windrow.rpc.bearer import Bearer
from windrow.rpc.errors import Failure
from windrow.rpc.moving_channel import MovingChannel
from windrow.rpc.tls import tls_fault

if TYPE_CHECKING:
    from windrow.rpc.contexts import Access

Request = TypeVar("Request")
Response = TypeVar("Response")


class Page(Protocol):
    """One page of a list. Not a worker's page, which is memory that it shares with the agent."""

    @property
    def next_page_token(self) -> str:
        """The token of the next page; "" on the last one."""
        ...


PageT = TypeVar("PageT", bound=Page)

CALL_TIMEOUT_S: Final = 30.0
"""For one try of one unary call. A master answers in milliseconds unless its disk stalls."""
STREAM_TIMEOUT_S: Final = 24 * 3600.0
"""For an upload or a download as a whole."""
RETRY_PAUSE_S: Final = 0.05
RETRY_PAUSE_MAX_S: Final = 1.0
TELL_AFTER_S: Final = 1.0
MESSAGE_BYTES_MAX: Final = 64 << 20
OPTIONS: Final = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    # Find a restarted master at once. The pauses between retries bound the number of tries.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Notice a connection that died silently, also in the middle of an upload.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Ignore proxies of the environment: masters are named by address.
    ("grpc.enable_http_proxy", 0),
]

_NOT_FOUND = {
    errors.JOB_UNKNOWN,
    errors.LOG_UNKNOWN,
    errors.OUTPUT_UNKNOWN,
    errors.OUTPUT_NOT_READY,
    errors.ARTIFACT_MISSING,
    errors.NODE_UNKNOWN,
    errors.STEP_UNKNOWN,
    errors.MINI_BATCH_UNKNOWN,
    errors.ASSET_UNKNOWN,
    errors.TOKEN_UNKNOWN,
    errors.FLEET_NOT_FOUND,
    errors.GROUP_NOT_FOUND,
}


class Connection:
    """A channel to one master.

    Calls are retried while the master is unavailable, for up to `patience_s` seconds without an answer.
    """

    def __init__(self, address: str, *, patience_s: float, access: Access | None = None) -> None:
        """`access`: certificates and token for the master at `address`; None if there are neither."""
        self.address = address
        self.secure = bool(access and access.ca)
        self.patience_s = patience_s
        self.closed = False
        self.why_gone: Callable[[], WindrowError | None] = lambda: None
        """Called before each retry. It returns an error if waiting is useless (a private master that cannot start).

        It may `move` the connection to another master instead, and return None.
        """
        self.on_wait: Callable[[str], None] = lambda message: None
        """Called with a message once calls have failed for TELL_AFTER_S. Then `told` is set until one succeeds."""
        self.told = False
        self.channel = MovingChannel(_open(address, access))
        """The channel for stubs."""

    def move(self, address: str) -> None:
        """Send all calls, including retries, to another master, without certificates."""
        self.channel.move(_open(address, None))
        self.address, self.secure = address, False

    def call(self, method: Callable[..., Response], request: Any, *, timeout_s: float = CALL_TIMEOUT_S) -> Response:
        """Make a unary call that may be repeated without harm. Raises WindrowError."""
        patience = Patience(self)
        while True:
            try:
                answer = method(request, timeout=timeout_s)
                self.told = False
                return answer
            except grpc.RpcError as error:
                patience.wait_or_raise(error)

    def pages(self, method: Callable[..., PageT], request: Any) -> Iterator[PageT]:
        """Yield the pages of a list, each fetched when it is needed. Raises WindrowError."""
        while True:
            page = self.call(method, request)
            yield page
            request.page_token = page.next_page_token
            if not request.page_token:
                return

    def close(self) -> None:
        """Close the channel, with the streams on it."""
        self.closed = True
        self.channel.close()

    @contextlib.contextmanager
    def stream(self, call: Any) -> Iterator[Any]:
        """Open a server stream that ends when its reader leaves."""
        try:
            yield call
        finally:
            call.cancel()


def _open(address: str, access: Access | None) -> grpc.Channel:
    target = grpc_target(address)
    token = "" if access is None else access.token
    if access is not None and access.ca:
        vouched = grpc.ssl_channel_credentials(access.ca.encode())
        channel = grpc.secure_channel(target, vouched, options=OPTIONS)
    else:
        channel = grpc.insecure_channel(target, options=OPTIONS)
        # The token of an address that is given up on goes nowhere else in clear text.
        token = token if stays_here(address) else ""
        if session_key.path_of(target):
            # At the first call: a private master that is still starting has made no key yet.
            return grpc.intercept_channel(channel, Bearer(lambda: session_key.read(target) or token))
    return grpc.intercept_channel(channel, Bearer(lambda: token)) if token else channel


class Patience:
    """Decides how long a failing call is retried. Any answer from the master resets it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._since: float | None = None
        self._pause = RETRY_PAUSE_S

    def answered(self) -> None:
        """Note that the master has answered."""
        self._since = None
        self._connection.told = False
        self._pause = RETRY_PAUSE_S

    def wait_or_raise(self, error: grpc.RpcError) -> None:
        """Pause before the next try. Raises WindrowError if another try is useless, or the time is over."""
        failure = errors.read_failure(error)
        # A master that ends cancels its streams. Only calls that this client closed are not retried.
        left = failure.code == grpc.StatusCode.CANCELLED and not self._connection.closed
        if not (is_transient(failure) or left):
            raise refusal(failure, self._connection.address) from error
        fault = tls_fault(failure.message, self._connection.address)
        if fault:
            raise MasterUntrusted(fault) from error
        now = time.monotonic()
        self._since = now if self._since is None else self._since
        address = self._connection.address
        gone = self._connection.why_gone()
        if gone is not None:
            raise gone from error
        if self._connection.address != address:
            self.answered()
            return
        if now - self._since >= self._connection.patience_s:
            raise unreachable(self._connection, failure) from error
        if now - self._since >= TELL_AFTER_S and not self._connection.told:
            self._connection.told = True
            self._connection.on_wait(
                f"No master answers at {self._connection.address}. Waiting up to {self._connection.patience_s:g} s for "
                f"it (Ctrl-C stops)."
            )
        time.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(2 * self._pause, RETRY_PAUSE_MAX_S)


def is_transient(failure: Failure) -> bool:
    """Whether another try may succeed: the connection failed, or the call took too long."""
    return failure.code == grpc.StatusCode.UNAVAILABLE or (
        failure.code == grpc.StatusCode.DEADLINE_EXCEEDED and not failure.reason
    )


def unreachable(connection: Connection, failure: Failure) -> MasterUnreachable:
    """Return the error for a master that does not answer."""
    why = (failure.message.strip().splitlines() or [failure.code.name])[0][:200]
    if why.startswith("failed to connect to all addresses"):
        # The list of addresses ends with the answer of the last one.
        why = why.rpartition(": ")[2]
    host = connection.address.rpartition(":")[0]
    # A port with TLS closes the socket of a caller without. For a name with several addresses, gRPC reports the last.
    may_want_tls = not connection.secure and ("Socket closed" in why or not _is_number(host))
    hint = "If it uses TLS, add its context: windrow context add. " if may_want_tls else ""
    return MasterUnreachable(
        f"No master answers at {connection.address} ({why}). Check that it is running, and that the address is right. "
        f"{hint}Start one with: windrow master --state DIR --listen HOST:PORT"
    )


def _is_number(host: str) -> bool:
    """Whether the host is an IP address or a Unix socket."""
    return host == "unix" or ":" in host or host.replace(".", "").isdecimal()


def refusal(failure: Failure, address: str) -> WindrowError:
    """Return the error for a failure that another try would not change."""
    if failure.reason in _NOT_FOUND:
        return NotFound(failure.message, reason=failure.reason)
    if failure.reason == errors.STORAGE_FULL:
        return WindrowError(
            f"{failure.message} The disk of the master at {address} is full; "
            f"the master resumes automatically once space is available.",
            reason=failure.reason,
        )
    if failure.reason == errors.CLIENT_TOKEN_INVALID:
        return RequestRefused(f"The master at {address} refused the call. {failure.message}", reason=failure.reason)
    if failure.reason and failure.reason != errors.INTERNAL:
        return RequestRefused(failure.message, reason=failure.reason)
    match failure.code:
        case grpc.StatusCode.UNIMPLEMENTED:
            return WindrowError(f"The server at {address} is not a Windrow master, or is too old ({failure.message}).")
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED:
            return RequestRefused(f"The master at {address} refused the call: {failure.message}")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return RequestRefused(
                f"The master at {address} refused the call because it is too large: {failure.message}"
            )
        case grpc.StatusCode.CANCELLED:
            return WindrowError("The call was ended because its client was closed.")
    return WindrowError(
        f"The master at {address} failed with an internal error ({failure.code.name}: {failure.message}). "
        f"Its log, master.log in its state folder, says more.",
        reason=failure.reason,
    )
