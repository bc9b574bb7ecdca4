"""Opening stores, with the credentials of the environment this process runs in.

The library is obstore (the object_store of the Arrow project): one API for S3, Google, Azure and web servers, with
streaming listings, conditional and ranged reads, multipart uploads and retries. Credentials come from where each
cloud's own tools look: variables of the environment, files of the home folder, the identity of the machine.
"""

from __future__ import annotations

import json
import os
import socket
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from windrow.storage.errors import StorageError, Trouble
from windrow.storage.urls import StorageUrl, parse_url

EXTRA = "windrow[storage]"
CONNECT_TIMEOUT_S = 5.0
READ_TIMEOUT_S = 30.0
"""A connection that is silent for this long is closed, and the request retried."""
RETRY_S = 120.0
"""How long a failing request is retried, with growing pauses."""
RETRIES_MAX = 8

_METADATA = ("169.254.169.254", 80)
_METADATA_PATIENCE_S = 1.0


def limit_s(name: str, default: float) -> float:
    """A limit in seconds, which the environment may override (`WINDROW_STORAGE_…`)."""
    try:
        value = float(os.environ.get(name, default))
    except ValueError:
        return default
    return value if value > 0 else default


def library() -> Any:
    """Return obstore. Raises StorageError that names the extra, if it is not installed."""
    try:
        import obstore
    except ImportError as error:
        raise StorageError(
            f"Remote storage needs a library that is not installed here ({error}). Install it with: pip install "
            f"'{EXTRA}'",
            Trouble.UNSUPPORTED,
        ) from error
    return obstore


@cache
def open_store(root: str) -> Any:
    """The store of a canonical address's root. Raises StorageError."""
    library()
    from obstore import store as stores

    url = parse_url(root)
    read_s = limit_s("WINDROW_STORAGE_READ_TIMEOUT", READ_TIMEOUT_S)
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
        "read_timeout": timedelta(seconds=read_s),
        # For a whole request, such as the read of one part.
        "timeout": timedelta(seconds=max(60.0, 2 * read_s)),
    }
    retries: Any = {
        "max_retries": RETRIES_MAX,
        "retry_timeout": timedelta(seconds=limit_s("WINDROW_STORAGE_RETRY", RETRY_S)),
    }
    common: Any = {"client_options": options, "retry_config": retries}
    try:
        if url.is_web:
            options["allow_http"] = url.scheme == "http"
            return stores.HTTPStore.from_url(root, **common)
        if url.scheme == "s3":
            options["allow_http"] = _plain_endpoint("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
            return stores.S3Store(url.root.partition("://")[2], **common, **aws_settings())
        if url.scheme == "gs":
            options["allow_http"] = _plain_endpoint("STORAGE_EMULATOR_HOST")
            return stores.GCSStore(url.root.partition("://")[2], **common, **google_settings())
        options["allow_http"] = _plain_endpoint("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
        return _azure_store(stores, url, common)
    except StorageError:
        raise
    except Exception as error:
        raise StorageError(f"{root} cannot be opened: {' '.join(str(error).split())}") from error


def _azure_store(stores: Any, url: StorageUrl, common: Any) -> Any:
    host = url.root.partition("://")[2]
    container, _, account = host.partition("@")
    if account:
        return stores.AzureStore(container, account_name=account.partition(".")[0], **common)
    if not os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") and os.environ.get("AZURE_STORAGE_USE_EMULATOR") is None:
        raise StorageError(
            f"{url.root} does not say which storage account is meant. Set AZURE_STORAGE_ACCOUNT_NAME for the master "
            "and the agents, or write abfss://container@account.dfs.core.windows.net/path",
        )
    return stores.AzureStore(container, **common)


def _plain_endpoint(*names: str) -> bool:
    """Whether the first of these variables that is set names an endpoint without TLS (`http://`)."""
    endpoint = next((os.environ[name] for name in names if os.environ.get(name)), "")
    return endpoint.lower().startswith("http://")


def google_settings() -> dict[str, Any]:
    """Settings for Google Cloud Storage. If Google's own tools are directed to another server, use that one, without
    credentials, as they do.
    """
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
    if not emulator:
        return {}
    account = {"gcs_base_url": emulator, "disable_oauth": True}
    return {"service_account_key": json.dumps(account | {"client_email": "", "private_key": "", "private_key_id": ""})}


def aws_settings() -> dict[str, Any]:
    """Settings for S3: the endpoint, and credentials that the library does not find itself (in profile files), or that
    there are none.
    """
    given = os.environ
    settings: dict[str, Any] = {}
    if endpoint := given.get("AWS_ENDPOINT_URL_S3"):
        settings["endpoint"] = endpoint
    known = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE")
    container = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if any(given.get(name) for name in (*known, *container)):
        return settings
    files = [
        Path(given.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")).expanduser(),
        Path(given.get("AWS_CONFIG_FILE", "~/.aws/config")).expanduser(),
    ]
    if given.get("AWS_PROFILE") or any(file.is_file() for file in files):
        return settings | _profile(files)
    try:
        socket.create_connection(_metadata_address(), timeout=_METADATA_PATIENCE_S).close()
    except OSError:
        raise _no_credentials(files) from None
    return settings


def _metadata_address() -> tuple[str, int]:
    """Host and port of the service that provides a machine's identity."""
    given = urlsplit(os.environ.get("AWS_METADATA_ENDPOINT", ""))
    return (given.hostname, given.port or 80) if given.hostname else _METADATA


def _profile(files: list[Path]) -> dict[str, Any]:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError as error:
        raise StorageError(
            f"The credentials of {files[0]} are read by boto3, which is not installed here ({error}). Install it with: "
            f"pip install '{EXTRA}'",
            Trouble.UNSUPPORTED,
        ) from error
    try:
        session = boto3.session.Session()
        if session.get_credentials() is None:
            raise _no_credentials(files)
        settings: dict[str, Any] = {"credential_provider": Boto3CredentialProvider(session)}
    except BotoCoreError as error:
        raise StorageError(f"The AWS credentials cannot be read: {error}", Trouble.DENIED) from error
    if session.region_name:
        settings["region"] = session.region_name
    return settings


def _no_credentials(files: list[Path]) -> StorageError:
    return StorageError(
        "There are no AWS credentials: neither AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment of this "
        f"process, nor {files[0]}, nor the identity of a container or machine. Give them to the master and to every "
        "agent; for a public bucket set AWS_SKIP_SIGNATURE=true.",
        Trouble.DENIED,
    )
