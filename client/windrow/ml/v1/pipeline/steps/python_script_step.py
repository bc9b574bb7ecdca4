"""As `azureml.pipeline.steps.python_script_step`."""

from __future__ import annotations

from windrow.ml.v1.steps import PythonScriptStep

__all__ = ["PythonScriptStep"]
