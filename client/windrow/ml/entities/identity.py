"""Identities and distributions that notebooks give their steps: read, and told to have no effect."""

from __future__ import annotations

from typing import Any

from windrow.ml.attributes import Attributes


class _Typed(Attributes):
    _is_copied = True
    kind = ""

    def __init__(self, **more: Any) -> None:
        super().__init__(type=self.kind, **more)


class UserIdentityConfiguration(_Typed):
    """`identity` of a step: a script runs with the rights of its agent all the same."""

    kind = "user_identity"


class ManagedIdentityConfiguration(_Typed):
    """`identity` of a step: a script runs with the rights of its agent all the same."""

    kind = "managed"


class AmlTokenConfiguration(_Typed):
    """`identity` of a step: a script runs with the rights of its agent all the same."""

    kind = "aml_token"


class MpiDistribution(_Typed):
    """`distribution` of a command: it runs once, on one node."""

    kind = "mpi"


class PyTorchDistribution(_Typed):
    """`distribution` of a command: it runs once, on one node."""

    kind = "pytorch"


class TensorFlowDistribution(_Typed):
    """`distribution` of a command: it runs once, on one node."""

    kind = "tensorflow"
