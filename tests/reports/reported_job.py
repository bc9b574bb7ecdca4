"""A small job with every kind of ending, really run, and its logs without what differs from run to run."""

from __future__ import annotations

import re
from pathlib import Path

from windrow_command import windrow

SCRIPT = """\
import os
import time
from azureml_user.parallel_run import EntryScript

def init():
    print("ready")
    EntryScript().logger.info("init is done")

def run(mini_batch):
    rows = []
    for path in mini_batch:
        name = os.path.basename(path)
        tried = os.path.join(os.environ["TRIED"], name)
        again = os.path.exists(tried)
        open(tried, "w").close()
        if name == "f3":
            raise ValueError("cannot score f3")
        if name == "f1" and not again:
            time.sleep(60)
        if name == "f7" and not again:
            raise KeyError("once")
        rows.append(name)
    return rows

def shutdown():
    print("done")
"""

JOB = """\
type: pipeline
experiment_name: reported
inputs:
  data: {{type: uri_folder, path: ./data}}
outputs:
  result: {{type: uri_file, path: ./out.txt}}
jobs:
  score:
    type: parallel
    mini_batch_size: "2"
    mini_batch_error_threshold: {threshold}
    max_concurrency_per_instance: 1
    retry_settings: {{max_retries: 1, timeout: 2}}
    environment_variables: {{TRIED: {tried}}}
    input_data: ${{{{inputs.data}}}}
    inputs: {{data: "${{{{parent.inputs.data}}}}"}}
    outputs: {{result: "${{{{parent.outputs.result}}}}"}}
    task:
      type: run_function
      code: ./code
      entry_script: entry.py
      program_arguments: {arguments}
      append_row_to: ${{{{outputs.result}}}}
"""

ARGUMENTS = "--resource_monitor_interval 1 --metrics_name_prefix my_ --push_metrics_to_parent true --split off"


class ReportedJob:
    """A folder with the job; `logs` after `run`."""

    def __init__(self, folder: Path, *, threshold: int = 5, arguments: str = ARGUMENTS) -> None:
        self.folder = folder
        for name in ("code", "data", "tried"):
            (folder / name).mkdir(parents=True)
        (folder / "code" / "entry.py").write_text(SCRIPT)
        for number in range(10):
            (folder / "data" / f"f{number}").touch()
        text = JOB.format(threshold=threshold, tried=folder / "tried", arguments=arguments)
        (folder / "job.yml").write_text(text)

    def run(self) -> tuple[int, str]:
        """Run it to its end; return (exit code, what was printed)."""
        return self.windrow("run", "job.yml", "--no-progress")

    def windrow(self, *arguments: str) -> tuple[int, str]:
        """Run a command in the folder; return (exit code, what it printed)."""
        done = windrow(*arguments, cwd=self.folder, together=True)
        return done.returncode, done.stdout

    @property
    def job_id(self) -> str:
        """Of the one job that ran here."""
        (found,) = (self.folder / ".windrow" / "jobs").iterdir()
        return found.name

    @property
    def logs(self) -> Path:
        """The job's logs folder."""
        return self.folder / ".windrow" / "jobs" / self.job_id / "logs"

    def plain(self, path: Path) -> str:
        """A file without what differs from run to run."""
        text = path.read_text().replace("\r\n", "\n")
        text = text.replace(self.job_id, "JOB").replace(str(self.folder), "FOLDER")
        for pattern, put in _DIFFERS:
            text = re.sub(pattern, put, text)
        return text

    def files(self) -> list[Path]:
        """All log files."""
        return sorted(path for path in self.logs.rglob("*") if path.is_file())

    def masked(self, path: Path) -> str:
        """Its path below the logs, without what differs."""
        return _without_times(str(path.relative_to(self.logs)))


def _without_times(name: str) -> str:
    node = next(re.finditer(r"/(?:stdout|node|perf)/([^/]+)/", name), None)
    if node is not None:
        name = name.replace(f"/{node[1]}/", "/NODE/")
    name = re.sub(r"/error/[^/]+/", "/error/NODE/", re.sub(r"/(stderr|entry_script_log)/[^/]+/", r"/\1/NODE/", name))
    return re.sub(r"/os/\d{10}/processes_\d\d", "/os/HOUR/processes_MM", re.sub(r"\.\d{10}\.", ".HOUR.", name))


_DIFFERS = [
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,]\d+(Z|\+00:00)?", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME"),
    (r"\d:\d\d:\d\d", "CLOCK"),
    (r"0x[0-9a-f]{8,}", "THREAD"),
    (r"\(?\d+\.\d s\)?", "DURATION"),
    (r'"(duration|process_time|run_method_duration)": [\d.e-]+', r'"\1": SECONDS'),
    (r"\d+\.\d{3,6}\b", "SECONDS"),
    (r"\|\d+\|\d+\|", "|PID|THREAD|"),
    (r"pid \d+, [^;]+;", "pid PID, PYTHON;"),
    (r"\(\d+\.\d+\.\d+\.\d+\)", "(ADDRESS)"),
    (r"node [\w.-]+ \(ADDRESS\)", "node NODE (ADDRESS)"),
    (r"of node [\w.-]+\b", "of node NODE"),
    (r"/error/[\w.-]+/process", "/error/NODE/process"),
    (r"attempts on [\w.-]+,", "attempts on NODE,"),
    (r"(?m)^(\d+,.*),[\w.-]+$", r"\1,NODE"),
    (r"(,\d),[\w.-]+,\"run", r'\1,NODE,"run'),
    (r"(?m)^[\w.-]+,(\d,100\.0|process\d+),(.*),[\d.]+,[\d.]+,TIME,TIME$", r"NODE,\1,\2,PERCENT,MB,TIME,TIME"),
    (r"incarnation \d+", "incarnation N"),
]
