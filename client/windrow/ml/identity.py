"""Credentials with the names of `azure.identity`, for notebooks that make one. They are not used."""

from __future__ import annotations

import time
from typing import NamedTuple


class AccessToken(NamedTuple):
    """A token that opens nothing."""

    token: str
    expires_on: int


class DefaultAzureCredential:
    """Accepted by `MLClient`, and not used: a context gives access to a master (docs/how-to/use-tls-and-tokens.md)."""

    def __init__(self, *arguments: object, **more: object) -> None:
        """Accept and ignore any arguments."""

    def get_token(self, *scopes: str, **more: object) -> AccessToken:
        """A token that opens nothing."""
        return AccessToken("", int(time.time()) + 3600)


class InteractiveBrowserCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`; no browser is opened."""


class AzureCliCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class ManagedIdentityCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class DeviceCodeCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class ClientSecretCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""
