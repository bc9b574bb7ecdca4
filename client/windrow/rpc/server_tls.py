"""TLS of a server's port: one PEM file with its key and its certificates, read again when it has been replaced."""

from __future__ import annotations

import logging
import os
import re
import ssl
from pathlib import Path

import grpc

from windrow.common.journal import say

_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----\n?", re.DOTALL)


def server_credentials(tls_file: Path) -> grpc.ServerCredentials:
    """Credentials that follow the file: a renewed certificate is shown from the next handshake on, and no connection is
    closed for it. Raises OSError when the file cannot be read or does not hold what it should.

    A renewed file that cannot be used is logged, and the certificate before it stays in use.
    """
    follower = _Follower(tls_file)
    # None from `changed` means that nothing has; the stubs do not know.
    return grpc.dynamic_ssl_server_credentials(follower.first, follower.changed)  # type: ignore[arg-type]


class _Follower:
    """Remembers which version of the file is in use."""

    def __init__(self, tls_file: Path) -> None:
        self._file = tls_file
        self._version = self._stat()
        self._content = tls_file.read_bytes()
        self.first = _configuration(tls_file, self._content)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return the new configuration if the file has changed. gRPC asks for it at each handshake."""
        try:
            version = self._stat()
            if version == self._version:
                return None
            self._version = version
            content, earlier = self._file.read_bytes(), self._content
            if content == earlier:
                return None
            configuration = _configuration(self._file, content)
            self._content = content
        except OSError as error:
            say(logging.ERROR, "the renewed TLS file cannot be used; the previous one stays in use", reason=str(error))
            return None
        say(logging.INFO, "the TLS file was renewed", file=str(self._file))
        return configuration

    def _stat(self) -> tuple[int, int, int]:
        status = os.stat(self._file)  # noqa: PTH116
        return status.st_ino, status.st_mtime_ns, status.st_size


def _configuration(tls_file: Path, content: bytes) -> grpc.ServerCertificateConfiguration:
    keys: list[bytes] = []
    certificates: list[bytes] = []
    for block in _BLOCK.finditer(content):
        (keys if block[1].endswith(b"PRIVATE KEY") else certificates).append(block[0])
    if len(keys) != 1 or not certificates:
        raise OSError(
            f"The TLS file {tls_file} contains {len(keys)} private keys and {len(certificates)} certificates; "
            "it must contain one key and its certificate, in PEM. `windrow setup` makes one."
        )
    try:
        # gRPC itself finds a fault only at the first handshake, and does not report it.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls_file, password=lambda: b"")
    except ssl.SSLError as error:
        raise OSError(
            f"The TLS file {tls_file} cannot be used: its key is damaged, is encrypted, or does not match its "
            f"first certificate ({error.reason or error}). `windrow setup` makes one."
        ) from error
    return grpc.ssl_server_certificate_configuration([(keys[0], b"".join(certificates))])
