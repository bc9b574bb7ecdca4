"""`readme.txt`: what lies where in the logs of a job, and of a step."""

from __future__ import annotations

_STEP = """\
  job_result.txt                 how the step ended, why, and what to do next: read this first
  job_error.txt                  where the step failed: what ended it
  job_progress_overview.*.txt    how far it was, line by line; the newest name (yyyymmddhh, UTC) is the live one
  failed_items.csv               every item without a result, with its cause (only where there are any)
  metrics.csv                    the step's metrics over time
  user/                          what your script says
    error.txt                    its errors, summed up
    error/<node>/processNNN.txt  full traces of init(), run() and shutdown()
    stdout/<node>/, stderr/<node>/, entry_script_log/<node>/
                                 what it printed, and what it logged by EntryScript().logger
    environment/<node>/          how its environment was built, in uv's words (where it asks for one)
  sys/                           what Windrow says
    master_role.*.txt            the scheduler's view; one file for each master that has run the step
    error/<node>/processNNN.txt  failed attempts as Windrow saw them, a JSON object a line
    node/<node>/processNNN.txt   what each worker process did; processNNN.profile where profiling_module is set
    perf/<node>/                 processor, memory, disks, network, processes: every resource_monitor_interval seconds
    job_report/                  processed_mini-batches.csv (a row an attempt), process_summary.csv, node_summary.csv

A worker process that ended is replaced by one with the next number. <node> is the node's name; where its agent was
started again during the step, what came later is in <node>.2, <node>.3, and so on. Files appear when there is
something to put into them.
"""


def job_readme(step_names: tuple[str, ...], command: str) -> str:
    """`logs/readme.txt`. `command`: lists the logs."""
    folders = "\n".join(f"  {name}/" for name in step_names)
    return f"""\
The logs of a job. From any machine: {command}

  job_result.txt                 how the job ended, why, and what to do next: read this first
{folders}
                                 the logs of each step:

{_STEP}"""


def step_readme(step_name: str) -> str:
    """`logs/<step>/readme.txt`."""
    return f"The logs of step {step_name}.\n\n{_STEP}"
