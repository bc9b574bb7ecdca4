"""Few open files allowed: raised where that can be, else told before anything begins."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from embedded_run import TYPED, EmbeddedRun, check_words

Make = Callable[..., EmbeddedRun]

LIMIT = "import resource\ndef run(mini_batch):\n    return [resource.getrlimit(resource.RLIMIT_NOFILE)[0]]\n"


def run_with(run: EmbeddedRun, limit: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`windrow run` below a shell that has set a limit."""
    command = f"ulimit {limit} && exec {TYPED} run job.yml {' '.join(options)}"
    return subprocess.run(
        ["sh", "-c", command], cwd=run.folder, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.parametrize(("limit", "needed"), [(12, 56), (28, 56), (55, 56)])
def test_too_few_for_ever_is_told_at_once(make: Make, limit: int, needed: int) -> None:
    run = make(LIMIT)
    done = run_with(run, f"-n {limit}", "--slots 1")
    assert done.returncode == 2, done.stdout + done.stderr
    check_words(done.stderr, [f"needs {needed} open files", f"the limit is {limit}", "ulimit -Hn"])
    assert not run.state.exists()


@pytest.mark.parametrize("limit", [20, 300])
def test_few_for_now_are_raised_and_scripts_keep_their_own_limit(make: Make, limit: int) -> None:
    run = make(LIMIT)
    done = run_with(run, f"-S -n {limit}", "--slots 1")
    assert done.returncode == 0, done.stdout + done.stderr
    # What the run itself cannot do without is raised for all of it, everything else for its own processes alone.
    assert set(run.output.read_text().split()) == {str(max(limit, 56))}


@pytest.mark.parametrize("role", ["master --state state --listen unix:socket", "agent --master unix:/nowhere/socket"])
def test_a_master_and_an_agent_tell_it_too(make: Make, role: str) -> None:
    run = make(LIMIT)
    done = subprocess.run(
        ["sh", "-c", f"ulimit -n 40 && exec {TYPED} {role}"],
        cwd=run.folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    check_words(done.stderr, ["the limit is 40", "ulimit -Hn"])
