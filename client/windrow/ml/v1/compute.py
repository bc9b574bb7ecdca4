"""Compute targets: the names of pools of agents. Windrow does not create machines."""

from __future__ import annotations

from typing import Any

from windrow.ml.v1.absent import Refusing


class ComputeTargetException(Exception):
    """What notebooks catch for a missing target. Never raised: every name is a pool."""


class ComputeTarget(Refusing):
    """A pool of agents."""

    def __init__(self, workspace: Any = None, name: str = "") -> None:
        """`name`: the name of the pool."""
        self.workspace = workspace
        self.name = name
        self.type = "AmlCompute"
        self.provisioning_state = "Succeeded"
        self.scale_settings = ScaleSettings()

    @staticmethod
    def create(workspace: Any, name: str, provisioning_configuration: Any = None) -> AmlCompute:
        """Return the pool of that name. Makes no machines."""
        return AmlCompute(workspace, name)

    @staticmethod
    def attach(workspace: Any, name: str, attach_configuration: Any = None) -> AmlCompute:
        """Return the pool of that name."""
        return AmlCompute(workspace, name)

    def wait_for_completion(self, *arguments: Any, **more: Any) -> None:
        """Return at once."""

    def get_status(self) -> ComputeStatus:
        """Return the state, which never changes."""
        return ComputeStatus(self.scale_settings)

    def delete(self) -> None:
        """Do nothing: agents stay."""


class AmlCompute(ComputeTarget):
    """A pool of agents by the name of a cluster.

    Not the `AmlCompute` of `windrow.ml.operations`, which version 2 scripts use.
    """

    @staticmethod
    def provisioning_configuration(*arguments: Any, **settings: Any) -> dict[str, Any]:
        """The settings, as they were given. They have no effect."""
        return settings

    @staticmethod
    def supported_vmsizes(workspace: Any, location: str | None = None) -> list[dict[str, Any]]:
        """None: Windrow makes no machines. Agents tell what they have (`windrow node list`)."""
        return []


class ScaleSettings:
    """How many nodes a pool may have. Agents come and go as their owners want, so all is None."""

    minimum_node_count: int | None = None
    maximum_node_count: int | None = None
    idle_seconds_before_scaledown: int | None = None


class ComputeStatus:
    """The state of a pool."""

    allocation_state = "Steady"
    provisioning_state = "Succeeded"
    errors = None
    """As in Azure ML where there are none."""

    def __init__(self, scale_settings: ScaleSettings) -> None:
        self.scale_settings = scale_settings

    def serialize(self) -> dict[str, str]:
        """Return the state as a dictionary."""
        return {"allocationState": self.allocation_state, "provisioningState": self.provisioning_state}
