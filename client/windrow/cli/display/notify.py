"""`--notify`: tells somebody that a job has ended, by a command, an address or the desktop.

A notification that fails is a warning. It changes neither the end of the job nor the exit code, and cannot hold them up
for long.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from windrow.cli.display.summary import end_line
from windrow.cli.messages import YELLOW, coloured, say

if TYPE_CHECKING:
    from windrow.sdk.job import Job

DESKTOP = "desktop"
COMMAND_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 10.0


class _NotSent(Exception):
    """A notification failed; the text says why, and what to do."""


def notify(targets: Sequence[str], job: Job, exit_code: int) -> None:
    """Send the end of a job to each target. `exit_code`: of the command that followed the job."""
    for target in targets:
        try:
            if target == DESKTOP:
                _show(job)
            elif target.startswith(("http://", "https://")):
                _post(target, job, exit_code)
            else:
                _call(target, job)
        except _NotSent as error:
            say(f"{coloured('warning:', YELLOW, sys.stderr)} {error}")
        except KeyboardInterrupt:
            # The job has ended: Ctrl-C means the notification alone.
            say(f"{coloured('warning:', YELLOW, sys.stderr)} A notification (--notify) was interrupted.")


def _call(command: str, job: Job) -> None:
    """Run a command line in a shell. Its output goes to standard error: standard output may be JSON. Raises
    _NotSent.
    """
    environment = {
        **os.environ,
        "WINDROW_JOB": job.job_id,
        "WINDROW_STATE_WORD": job.state.value,
        "WINDROW_SUMMARY": end_line(job),
    }
    code = _ended(["/bin/sh", "-c", command], environment)
    if code:
        raise _NotSent(f"--notify {command!r} ended with exit code {code}. Try it by itself in a shell.")


def _show(job: Job) -> None:
    """Show a message on the desktop. Raises _NotSent."""
    program = shutil.which("notify-send")
    if program is None:
        raise _NotSent(
            "--notify desktop: there is no notify-send on this machine, so nothing is shown. Install it (libnotify), "
            "or give a command."
        )
    code = _ended([program, "--app-name=Windrow", "--", "Windrow", end_line(job)], None)
    if code:
        raise _NotSent(f"--notify desktop: notify-send ended with exit code {code}. Is there a desktop to show it on?")


def _ended(command: list[str], environment: dict[str, str] | None) -> int:
    """Run a process to its end; return its exit code. One that takes too long is killed with its children. Raises
    _NotSent.
    """
    try:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True)
    except OSError as error:
        raise _NotSent(f"--notify: {command[0]} cannot be started: {error.strerror}.") from error
    try:
        return process.wait(COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise _NotSent(
            f"--notify {command[-1]!r} did not end within {COMMAND_TIMEOUT_S:.0f} s and was killed."
        ) from error
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _post(address: str, job: Job, exit_code: int) -> None:
    """Post the end as JSON. Raises _NotSent, which names only the host: the rest of an address may be secret."""
    import http.client
    import urllib.error
    import urllib.request

    line = end_line(job)
    body = {"text": line, "job_id": job.job_id, "state": job.state.value, "summary": line, "exit_code": exit_code}
    host = "the address"
    try:
        # What is not an address raises ValueError, too.
        host = urlsplit(address).hostname or host
        request = urllib.request.Request(
            address, json.dumps(body).encode(), {"Content-Type": "application/json", "User-Agent": "windrow"}
        )
        with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S):
            pass
    except urllib.error.HTTPError as error:
        raise _NotSent(f"--notify: {host} answered {error.code} {error.reason}. Check the address.") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        why = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
        raise _NotSent(f"--notify: {host} could not be reached: {why}. Check the address, and the network.") from error
