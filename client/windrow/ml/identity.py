"""Credentials with the names of `azure.identity` and `azure.ai.ml.identity`, for notebooks that make one. They are not
used.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from windrow.errors import WindrowError
from windrow.ml.absent import standing_in


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


class AuthorizationCodeCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class AzureCliCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class AzureDeveloperCliCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class AzureMLOnBehalfOfCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class AzurePipelinesCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class AzurePowerShellCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class CertificateCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class ChainedTokenCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class ClientAssertionCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class ClientSecretCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class DeviceCodeCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class EnvironmentCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class InteractiveBrowserCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`; no browser is opened."""


class ManagedIdentityCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class OnBehalfOfCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class SharedTokenCacheCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class UsernamePasswordCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class VisualStudioCodeCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class WorkloadIdentityCredential(DefaultAzureCredential):
    """The same as `DefaultAzureCredential`."""


class AuthenticationRecord:
    """Accepted, and not used."""


class TokenCachePersistenceOptions:
    """Accepted, and not used."""

    def __init__(self, **options: object) -> None:
        """Accept and ignore any options."""


class AzureAuthorityHosts:
    """Addresses that credentials are given; they are not used."""

    AZURE_CHINA = "login.chinacloudapi.cn"
    AZURE_GOVERNMENT = "login.microsoftonline.us"
    AZURE_PUBLIC_CLOUD = "login.microsoftonline.com"


KnownAuthorities = AzureAuthorityHosts


class CredentialUnavailableError(WindrowError):
    """Nothing here raises it."""


class AuthenticationRequiredError(CredentialUnavailableError):
    """Nothing here raises it."""


def get_bearer_token_provider(credential: DefaultAzureCredential, *scopes: str) -> Callable[[], str]:
    """What returns a token that opens nothing."""
    return lambda: credential.get_token(*scopes).token


__getattr__ = standing_in(__name__)
