"""As `azureml.widgets`: a run's state in words."""

from __future__ import annotations

from windrow.ml.v1.runs import PipelineRun


class RunDetails:
    """Shows a run."""

    def __init__(self, run_instance: PipelineRun) -> None:
        """`run_instance`: of a pipeline."""
        self._run = run_instance

    def show(self, *arguments: object, **more: object) -> None:
        """Print the states of the run and of its steps, as they are now."""
        print(f"{self._run.id}: {self._run.get_status()}")
        for step in self._run.get_steps():
            print(f"  {step.name}: {step.get_status()}")
