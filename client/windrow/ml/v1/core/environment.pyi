# Made from `windrow.ml.v1.names` by `make docs`. Do not edit.
from windrow.ml.v1.environment import CondaDependencies
from windrow.ml.v1.environment import Environment
from windrow.ml.v1.ignored import ContainerRegistry
from windrow.ml.v1.ignored import DockerSection

__all__ = [
    "CondaDependencies",
    "ContainerRegistry",
    "DockerSection",
    "Environment",
]
