"""As `azureml.core.authentication`: accepted by a workspace, and not used."""

from __future__ import annotations


class InteractiveLoginAuthentication:
    """Nothing asks for it: access to a master is by its context (docs/how-to/use-tls-and-tokens.md)."""

    def __init__(self, *arguments: object, **more: object) -> None:
        """Anything is accepted."""


class ServicePrincipalAuthentication(InteractiveLoginAuthentication):
    """As `InteractiveLoginAuthentication`."""


class MsiAuthentication(InteractiveLoginAuthentication):
    """As `InteractiveLoginAuthentication`."""


class AzureCliAuthentication(InteractiveLoginAuthentication):
    """As `InteractiveLoginAuthentication`."""
