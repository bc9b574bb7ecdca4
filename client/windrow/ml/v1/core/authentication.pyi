# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.workspace import AzureCliAuthentication
from windrow.ml.v1.workspace import InteractiveLoginAuthentication
from windrow.ml.v1.workspace import MsiAuthentication
from windrow.ml.v1.workspace import ServicePrincipalAuthentication

__all__ = [
    "AzureCliAuthentication",
    "InteractiveLoginAuthentication",
    "MsiAuthentication",
    "ServicePrincipalAuthentication",
]
