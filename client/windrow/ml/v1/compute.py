"""Compute targets: names of pools of agents. Nothing is made."""

from __future__ import annotations

from typing import Any


class ComputeTargetException(Exception):
    """What notebooks catch where a target is not there; here every name is one."""


class ComputeTarget:
    """A pool of agents."""

    def __init__(self, workspace: Any = None, name: str = "") -> None:
        """`name`: of the pool."""
        self.workspace = workspace
        self.name = name
        self.type = "AmlCompute"
        self.provisioning_state = "Succeeded"

    @staticmethod
    def create(workspace: Any, name: str, provisioning_configuration: Any = None) -> AmlCompute:
        """The pool of that name; machines are not made."""
        return AmlCompute(workspace, name)

    @staticmethod
    def attach(workspace: Any, name: str, attach_configuration: Any = None) -> AmlCompute:
        """The pool of that name."""
        return AmlCompute(workspace, name)

    def wait_for_completion(self, *arguments: Any, **more: Any) -> None:
        """Nothing is left to wait for."""

    def get_status(self) -> ComputeStatus:
        """Its state."""
        return ComputeStatus()

    def delete(self) -> None:
        """Agents stay."""


class AmlCompute(ComputeTarget):
    """A pool of agents by the name of a cluster."""

    @staticmethod
    def provisioning_configuration(*arguments: Any, **settings: Any) -> dict[str, Any]:
        """What a cluster would be made with; it has no effect."""
        return settings


class ComputeStatus:
    """The state of a pool."""

    allocation_state = "Steady"

    def serialize(self) -> dict[str, str]:
        """As a dictionary."""
        return {"allocationState": self.allocation_state, "provisioningState": "Succeeded"}
