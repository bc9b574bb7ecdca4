"""Explains why a TLS connection to a master failed, from gRPC's message."""

from __future__ import annotations


def tls_fault(message: str, address: str) -> str:
    """What is wrong and what to do; empty if the message is not about TLS."""
    if "certificate has expired" in message or "certificate is not yet valid" in message:
        when = "has expired" if "expired" in message else "is not valid yet"
        return (
            f"The certificate of the master at {address} {when}. Check this machine's "
            f"clock. If it is right, renew the certificate: run `windrow setup` again where the master is."
        )
    if "CERTIFICATE_VERIFY_FAILED" in message:
        return (
            f"The server at {address} is not the master that you know: its certificate was issued by another "
            f"authority. If the master was set up again, add its context again (`windrow context add`), or copy its "
            f"ca.pem; if not, do not trust it."
        )
    if "Hostname Verification Check failed" in message:
        host = address.rpartition(":")[0].strip("[]")
        return (
            f"The certificate of the master is not valid for {host!r}. Use one of its names, or add this one: "
            f"`windrow setup --name {host}` where the master is (with Compose: WINDROW_PUBLIC_HOST)."
        )
    if "WRONG_VERSION_NUMBER" in message:
        return f"The server at {address} does not speak TLS. Give the master's port, or connect without certificates."
    return ""
