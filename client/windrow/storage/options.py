"""What another library needs to open a store on its own, with the credentials of this process: options in the words of
the object_store project, as `deltalake` takes them. They are secret.
"""

from __future__ import annotations

import os

from windrow.storage.stores import (
    CONNECT_TIMEOUT_S,
    READ_TIMEOUT_S,
    RETRIES_MAX,
    RETRY_S,
    aws_settings,
    google_settings,
    limit_s,
)
from windrow.storage.urls import StorageUrl

_PREFIXES = {"s3": "AWS_", "gs": "GOOGLE_", "abfss": "AZURE_", "az": "AZURE_"}
_PLAIN = {"s3": "AWS_ALLOW_HTTP", "abfss": "AZURE_ALLOW_HTTP", "az": "AZURE_ALLOW_HTTP"}
"""Whether an endpoint without TLS may be used, which only its operator can have chosen."""


def store_options(url: StorageUrl) -> dict[str, str]:
    """Return options for the store of an address. Raises StorageError if there are no credentials."""
    prefix = _PREFIXES[url.scheme]
    options = {name: value for name, value in os.environ.items() if name.startswith(prefix) and value}
    options |= {
        "connect_timeout": f"{CONNECT_TIMEOUT_S:g}s",
        "timeout": f"{max(60.0, 2 * limit_s('WINDROW_STORAGE_READ_TIMEOUT', READ_TIMEOUT_S)):g}s",
        "max_retries": str(RETRIES_MAX),
        "retry_timeout": f"{limit_s('WINDROW_STORAGE_RETRY', RETRY_S):g}s",
    }
    if url.scheme == "gs":
        options |= {f"GOOGLE_{name.upper()}": value for name, value in google_settings().items()}
    if url.scheme == "s3":
        settings = aws_settings()
        if "credential_provider" in settings:
            found = settings["credential_provider"]()
            options |= {
                "AWS_ACCESS_KEY_ID": found["access_key_id"],
                "AWS_SECRET_ACCESS_KEY": found["secret_access_key"],
            }
            if found.get("token"):
                options["AWS_SESSION_TOKEN"] = found["token"]
        if "region" in settings:
            options["AWS_REGION"] = settings["region"]
        if "endpoint" in settings:
            options["AWS_ENDPOINT_URL"] = settings["endpoint"]
    if url.scheme in _PLAIN and any(
        value.lower().startswith("http://") for name, value in options.items() if "ENDPOINT" in name
    ):
        options[_PLAIN[url.scheme]] = "true"
    return options
