"""`windrow doctor`: is this machine fit, and what is wrong?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.messages import DIM, GREEN, RED, YELLOW, coloured
from windrow.cli.options import completion
from windrow.cli.options.declared import Option, command
from windrow.cli.options.shared import Output, OutputForm
from windrow.cli.tables import out, print_json
from windrow.common.quantities import counted
from windrow.doctor.findings import FAIL, OK, WARN, Finding

COLOURS = {OK: GREEN, WARN: YELLOW, FAIL: RED}
WIDTH = 24


@command(
    epilog="Example: windrow doctor --state /var/lib/windrow",
    short_help="Check this machine, and its master if there is one.",
)
def doctor(
    state: Annotated[
        Path,
        Option("--state", envvar="WINDROW_STATE", metavar="DIR", help="The state folder of runs, or of a master."),
    ] = Path(".windrow"),
    master: Annotated[
        str | None,
        Option(
            "--master",
            envvar="WINDROW_MASTER",
            metavar="MASTER",
            help="Also check this master: host:port, or the name of a context [default: the context in use].",
            autocompletion=completion.context_names,
        ),
    ] = None,
    python: Annotated[
        str | None,
        Option(
            "--python",
            metavar="PATH",
            help="Interpreter that would run scripts [default: the active environment's, else Windrow's].",
        ),
    ] = None,
    deep: Annotated[
        bool,
        Option(
            "--deep",
            help="Also verify every checksum, like `windrow state check`. No master may use the state folder.",
        ),
    ] = False,
    output: Output = OutputForm.TEXT,
) -> int:
    """Check this machine, and its master if there is one.

    Each line is ok, warn or fail, with what was found and what to do about it. Secrets are never shown. Exit codes: 0
    nothing fails, 1 something does.
    """
    from windrow.doctor.checks import run_checks

    findings: list[Finding] = []
    area = ""
    for finding in run_checks(str(state.absolute()), master=master, python=python, with_master=True, deep=deep):
        findings.append(finding)
        if output is OutputForm.TEXT:
            if finding.area != area:
                area = finding.area
                out(f"{'' if len(findings) == 1 else chr(10)}{area}")
            _tell(finding)
    warnings, failures = ([f for f in findings if f.level == level] for level in (WARN, FAIL))
    code = exit_codes.JOB_FAILED if failures else exit_codes.DONE
    if output is OutputForm.JSON:
        print_json(
            {
                "fit": not failures,
                "findings": [finding._asdict() for finding in findings],
                "warnings": len(warnings),
                "failures": len(failures),
            }
        )
        return code
    out("")
    told = f" {counted(len(warnings), 'warning')}." if warnings else ""
    if failures:
        out(f"{coloured(f'{len(failures)} of {len(findings)} checks fail.', RED, sys.stdout)}{told}")
    else:
        out(f"{coloured('Nothing fails: this machine is fit.', GREEN, sys.stdout)}{told}")
    return code


def _tell(finding: Finding) -> None:
    level = coloured(f"{finding.level:<4}", COLOURS[finding.level], sys.stdout)
    out(f"  {level}  {finding.name:<{WIDTH}}{finding.seen}", hang=8 + WIDTH)
    if finding.advice:
        out(f"        {'':<{WIDTH}}{coloured(finding.advice, DIM, sys.stdout)}", hang=8 + WIDTH)
