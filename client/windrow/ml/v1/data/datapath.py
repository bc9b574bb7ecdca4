"""As `azureml.data.datapath`."""

from __future__ import annotations

from windrow.ml.v1.stores import DataPath, DataPathComputeBinding

__all__ = ["DataPath", "DataPathComputeBinding"]
