"""`readme.txt`: which files there are in the logs of a job, and of a step."""

from __future__ import annotations

_STEP = """\
  job_result.txt                 how the step ended, why, and what to do next: read this first
  job_error.txt                  what ended the step (only if it failed)
  job_progress_overview.*.txt    progress, line by line; the file with the newest name (yyyymmddhh, UTC) grows
  failed_items.csv               every item without a result, with its cause (only if there are any)
  metrics.csv                    the step's metrics over time
  tags.csv                       the tags that notebooks have given it (only if there are any)
  user/                          from your script
    error.txt                    a summary of its errors
    error/<node>/processNNN.txt  full traces of init(), run() and shutdown()
    stdout/<node>/, stderr/<node>/, entry_script_log/<node>/
                                 what it printed, and what it logged by EntryScript().logger
    metrics/<node>/processNNN.csv
                                 the values that it logged by Run.log: windrow job show JOB --metrics
    files/                       what it uploaded by run.upload_file and run.upload_folder
    environment/<node>/          the output of uv while the step's environment was built (if it has one)
  sys/                           from Windrow
    master_role.*.txt            the scheduler's view; one file for each master that has run the step
    error/<node>/processNNN.txt  failed attempts as Windrow saw them, one JSON object per line
    node/<node>/processNNN.txt   what each worker process did; processNNN.profile if profiling_module is set
    perf/<node>/                 processor, memory, disks, network, processes: every resource_monitor_interval seconds
    job_report/                  processed_mini-batches.csv (one row per attempt), process_summary.csv, node_summary.csv

A worker process that ends is replaced by one with the next number. <node> is the name of the node; if its agent was
restarted during the step, later logs are in <node>.2, <node>.3, and so on. A file appears when there is something to
write into it.
"""


def job_readme(step_names: tuple[str, ...], command: str) -> str:
    """Return the text of `logs/readme.txt`. `command`: lists the logs."""
    folders = "\n".join(f"  {name}/" for name in step_names)
    return f"""\
The logs of a job. From any machine: {command}

  job_result.txt                 how the job ended, why, and what to do next: read this first
{folders}
                                 the logs of each step:

{_STEP}"""


def step_readme(step_name: str) -> str:
    """Return the text of `logs/<step>/readme.txt`."""
    return f"The logs of step {step_name}.\n\n{_STEP}"
