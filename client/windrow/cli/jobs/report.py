"""`windrow job report`: a job's figures as a page to open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windrow.cli import exit_codes
from windrow.cli.messages import RawOutput, say
from windrow.cli.options.declared import Option, command
from windrow.cli.options.master_choice import master_options
from windrow.cli.options.shared import JobName, Master, Output, OutputForm, State, open_client, warn_read_only
from windrow.cli.tables import out, print_json
from windrow.errors import UsageError
from windrow.sdk.job_names import only_job
from windrow.sdk.metrics import metrics_and_tags


@command(epilog="Example: windrow job report digits-20260501-101500-ab12 --to report.html --open")
def report(
    job: JobName,
    to: Annotated[
        Path | None,
        Option("--to", metavar="FILE", help="Where to write it; - for standard output [default: JOB.report.html]."),
    ] = None,
    show: Annotated[bool, Option("--open", help="Open it in the web browser.")] = False,
    master: Master = None,
    state: State = None,
    output: Output = OutputForm.TEXT,
) -> int:
    """Write a report of a job as one HTML file.

    It shows who did what when, durations, memory, failures and waste, as of now; the job may still run. With
    --format json: the figures behind it.
    """
    to_stdout = to is not None and str(to) == "-"
    if show and (to_stdout or output is OutputForm.JSON):
        raise UsageError("--open needs a file: leave out `--to -` and `--format json`.")
    with open_client(master, state) as client:
        job = client.find(only_job(job)).job_id
        figures = client.report(job)
        metrics, tags = metrics_and_tags(client, job)
        warn_read_only(client)
    if output is OutputForm.JSON:
        logged = [metric.to_dict() for metric in metrics] + [tag.to_dict() for tag in tags]
        print_json({**figures, "metrics": logged})
        return exit_codes.DONE
    from windrow.job_page import job_page

    page = job_page(figures, metrics, tags, options=master_options(master, state))
    if to_stdout:
        page_out = RawOutput()
        page_out.write_text(page)
        page_out.flush()
        return exit_codes.DONE
    target = to if to is not None else Path(f"{job}.report.html")
    try:
        target.write_text(page, encoding="utf-8", errors="xmlcharrefreplace")
    except OSError as error:
        raise UsageError(
            f"The report cannot be written to {target}: {error.strerror}. Choose another file with --to FILE."
        ) from error
    out(str(target))
    if show:
        import webbrowser

        if not webbrowser.open(target.absolute().as_uri()):
            say("No web browser was found here; open the file yourself.")
    return exit_codes.DONE
