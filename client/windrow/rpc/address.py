"""Addresses of masters, as users write them."""

from __future__ import annotations

from windrow.errors import UsageError


def stays_here(address: str) -> bool:
    """Whether what is sent to an address (`host:port` or `unix:/path`) cannot leave this machine."""
    if address.startswith("unix:"):
        return True
    import ipaddress  # not for runs on this machine, which use a socket

    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def grpc_target(address: str) -> str:
    """The gRPC target of an address as users write it: `host:port` or `unix:/path`. Raises UsageError."""
    if address.startswith("unix:"):
        path = address.removeprefix("unix:")
        if not path.startswith("/"):
            raise UsageError(
                f'"{address}" is not a master address: unix: must be followed by an absolute path, '
                "for example unix:/run/windrow/master"
            )
        return address
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise UsageError(
            f'"{address}" is not a master address. Write host:port (for example 127.0.0.1:8470) or unix:/path. '
            "For a run on this machine, give its state folder with --state DIR."
        )
    return address
