"""Whether a Python can run the scripts of a job, before any work begins."""

# Only cheap modules: this is on the way to the first run().
from __future__ import annotations

from windrow.common.interpreter import NoInterpreter, check_interpreter, missing_libraries
from windrow.embedded import interrupts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.spec import EffectiveStep, LoadedJob


def check_job_interpreter(python: str, loaded: LoadedJob, *, builds: bool = False) -> None:
    """Run a Python for a moment: is it new enough, and does it have the libraries that the tables of a job need?

    `builds`: steps that ask for an environment get one, and do not run in this Python. Raises NoInterpreter.
    """
    steps = [step for step in loaded.job.steps if loaded.libraries.get(step.name)]
    steps = [step for step in steps if not builds or step.environment is None]
    for step in steps:
        # An interrupt between its start and its end would leave the probe behind.
        with interrupts.held() as held:
            missing = missing_libraries(
                python,
                loaded.libraries[step.name],
                folder=loaded.code_folders[step.name],
                variables=step.environment_variables,
                check=held.check,
            )
        if missing:
            import shlex

            raise NoInterpreter(
                f"Step {step.name} {_what_for(step, missing)}, which needs {' and '.join(missing)} in the Python "
                f"that runs the script, {python}: not installed there. Install what is missing "
                f"({shlex.quote(python)} -m pip install {' '.join(missing)}), or run scripts in another Python "
                "(--python PATH)"
            )
    if not steps:
        with interrupts.held() as held:
            check_interpreter(python, held.check)


def _what_for(step: EffectiveStep, missing: Sequence[str]) -> str:
    divided = [step.inputs[name] for name in step.input_data]
    reads = "pandas" in missing or any(getattr(given, "type", "") == "mltable" for given in divided)
    return "writes Parquet" if step.rows.format == "parquet" and not reads else "reads a table"
