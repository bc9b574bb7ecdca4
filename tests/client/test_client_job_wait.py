"""`windrow job wait`, and `--notify` wherever a command waits for the end of a job."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import windrow
from client_workspace import Workspace, end, served_cluster, wait_until
from windrow.cli.display.summary import end_line
from windrow.sdk.job import Job, JobState

NOTE = 'printf "%s\\n" "$WINDROW_JOB" "$WINDROW_STATE_WORD" "$WINDROW_SUMMARY" >> told.txt'


@dataclass
class ServedCluster:
    """A served master with an agent, and jobs for it."""

    workspace: Workspace
    address: str

    def create(self, name: str, *contents: str) -> None:
        """Submit a job over items of its own, which waits for a file of its name if one is `wait`."""
        data = self.workspace.folder / f"data-{name}"
        data.mkdir()
        for number, content in enumerate(contents):
            (data / f"item{number}.txt").write_text(content)
        gate = f"jobs.score.environment_variables.GATE={self.workspace.folder / name}"
        done = self.run("job", "create", "job.yml", "--name", name, "--set", f"inputs.data.path={data}", "--set", gate)
        assert done[0] == 0, done

    def release(self, name: str) -> None:
        """Let the items of a job go on."""
        (self.workspace.folder / name).touch()

    def run(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """The command's exit code and its output."""
        done = self.workspace.run(*arguments, WINDROW_MASTER=self.address, **environment)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedCluster]:
    """One for all tests here."""
    workspace = Workspace(tmp_path_factory.mktemp("wait"))
    workspace.write(["a"], error_threshold=5)
    with served_cluster(workspace, workspace.folder) as address:
        cluster = ServedCluster(workspace, address)
        cluster.create("good", "a", "b")
        assert cluster.run("job", "wait", "good")[0] == 0
        yield cluster


def test_one_line_for_each_job_when_it_ends(cluster: ServedCluster) -> None:
    cluster.create("first", "wait")
    cluster.create("second", "wait", "raise")
    waiting = cluster.workspace.start(
        "job", "wait", "first", "second", "first", "--strict", WINDROW_MASTER=cluster.address
    )
    assert waiting.stdout is not None
    cluster.release("second")
    assert waiting.stdout.readline().startswith("second is completed with failures: 1 of 2 items ok, 1 failed, after ")
    cluster.release("first")
    rest, said = end(waiting)
    assert rest.startswith("first is completed: 1 of 1 item ok, after ")
    assert (len(rest.splitlines()), said, waiting.returncode) == (1, "", 3)


def test_the_exit_code_is_that_of_the_job(cluster: ServedCluster) -> None:
    cluster.create("stopped", "wait")
    with windrow.Client(cluster.address) as client:
        client.cancel("stopped")
    code, shown, _ = cluster.run("job", "wait", "stop", "good")
    assert code == 4
    assert {line.split(":")[0] for line in shown.splitlines()} == {"stopped is cancelled", "good is completed"}
    code, shown, _ = cluster.run("job", "wait", "good", "--format", "json")
    told = json.loads(shown)
    assert (code, told["event"], told["job"]["job_id"], told["exit_code"]) == (0, "end", "good", 0)
    assert cluster.run("job", "wait", "nobody")[0] == 2


def test_a_wait_that_gives_up_leaves_the_job(cluster: ServedCluster) -> None:
    cluster.create("long", "wait")
    code, shown, said = cluster.run("job", "wait", "long", "--timeout", "0")
    assert (code, shown) == (124, "")
    assert said == "Not ended within 0.0 s: long. To wait longer, repeat the command with a larger --timeout.\n"
    cluster.release("long")
    assert cluster.run("job", "wait", "long")[0] == 0


def test_an_unfinished_run_that_nothing_runs_is_not_waited_for(workspace: Workspace) -> None:
    workspace.write(["wait"], name="name: left")
    running = workspace.start("run", "job.yml")
    wait_until(lambda: '"running"' in workspace.run("job", "list", "--format", "json").stdout, "the job runs")
    running.kill()
    end(running)
    wait_until(lambda: not workspace.processes(), "its master and agent have ended, too")
    done = workspace.run("job", "wait", "left")
    assert (done.returncode, done.stdout) == (130, "")
    assert "(the same command, or the same call in Python), or by: windrow job retry left" in done.stderr


@pytest.mark.parametrize("command", ["job stream good", "job wait good", "job create job.yml --stream"])
def test_a_command_line_is_told(cluster: ServedCluster, command: str) -> None:
    told = cluster.workspace.folder / "told.txt"
    told.unlink(missing_ok=True)
    code, _, said = cluster.run(*command.split(), "--notify", NOTE)
    job, state, line = told.read_text().splitlines()
    assert (code, state, "warning" in said) == (0, "completed", False)
    assert job == "good" or "create" in command
    assert line.startswith(f"{job} is completed: ")


def test_a_run_tells_its_end(workspace: Workspace) -> None:
    workspace.write(["a", "raise"], name="name: mine", error_threshold=0)
    done = workspace.run("run", "job.yml", "--notify", NOTE, "--notify", "echo seen; exit 3", "--format", "json")
    assert done.returncode == 1, done.stderr
    assert (workspace.folder / "told.txt").read_text().splitlines()[:2] == ["mine", "failed"]
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "end"
    assert done.stderr.splitlines()[-2:] == [
        "seen",
        "warning: --notify 'echo seen; exit 3' ended with exit code 3. Try it by itself in a shell.",
    ]


@dataclass
class Listener:
    """A web server that keeps what it gets."""

    address: str = ""
    answer: int = 200
    got: list[dict[str, object]] = field(default_factory=list)


@pytest.fixture
def listener() -> Iterator[Listener]:
    """One on a free port."""
    listener = Listener()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            listener.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(listener.answer)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    listener.address = f"http://127.0.0.1:{server.server_port}/secret"
    yield listener
    server.shutdown()
    server.server_close()


def test_an_address_gets_json(cluster: ServedCluster, listener: Listener) -> None:
    assert cluster.run("job", "wait", "good", "--notify", listener.address)[0] == 0
    [got] = listener.got
    assert (got["job_id"], got["state"], got["exit_code"]) == ("good", "completed", 0)
    assert got["text"] == got["summary"] and str(got["text"]).startswith("good is completed: 2 of 2 items ok")


def test_an_address_that_fails_is_a_warning_without_its_secrets(cluster: ServedCluster, listener: Listener) -> None:
    listener.answer = 404
    code, _, said = cluster.run("job", "wait", "good", "--notify", listener.address)
    assert (code, said) == (0, "warning: --notify: 127.0.0.1 answered 404 Not Found. Check the address.\n")
    for address, host in (
        ("http://127.0.0.1:1/secret", "127.0.0.1"),
        ("http://", "the address"),
        ("http://127.0.0.1:port/secret", "127.0.0.1"),
        ("http://a b/secret", "a b"),
    ):
        code, _, said = cluster.run("job", "wait", "good", "--notify", address)
        assert (code, f"{host} could not be reached" in said, "secret" in said) == (0, True, False), said


def test_the_desktop_is_told_if_it_can_be(cluster: ServedCluster, tmp_path: Path) -> None:
    code, _, said = cluster.run("job", "wait", "good", "--notify", "desktop", PATH=str(tmp_path))
    assert (code, "there is no notify-send on this machine" in said) == (0, True)
    program = tmp_path / "notify-send"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/shown\n')
    program.chmod(0o755)
    code, _, said = cluster.run("job", "wait", "good", "--notify", "desktop", PATH=str(tmp_path))
    assert (code, said) == (0, "")
    assert (tmp_path / "shown").read_text().splitlines()[-1].startswith("good is completed")


def test_a_notification_needs_a_wait(cluster: ServedCluster) -> None:
    code, _, said = cluster.run("job", "create", "job.yml", "--notify", "true")
    assert (code, "Add --stream" in said) == (2, True)


def test_the_line_of_a_job_that_has_nothing_to_count() -> None:
    assert end_line(Job("j", "", JobState.FAILED, message="No\n  input.")) == "j is failed: No input."
    assert (
        repr(Job("j", "", JobState.COMPLETED_WITH_FAILURES))
        == "<Job j: completed with failures, nothing is counted yet>"
    )
