"""Providers of this machine: agents as processes, and engines that are spoken to by commands."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from private_processes import as_user, assert_private
from windrow.cli.cluster.fleet import _print_csv
from windrow.fleet.engine_thread import EngineThread, Event, Listed, Submitted
from windrow.fleet.messages import report_message
from windrow.fleet.provider import AgentCommand, Refused, Request, Seen, Shape, State, Unreachable
from windrow.fleet.providers import command, engine_command, process
from windrow.fleet.reconciling import Report
from windrow.rpc.v1 import fleet_service_pb2 as pb
from windrow_master.core.fleet_bounds import why_not_synced

PREFIX = "f-g-abcdef-"
DEADLINE_S = 120.0


def request(name: str, *words: str, **environment: str) -> Request:
    return Request(PREFIX + name, Shape(1), None, AgentCommand(words, environment, "/nonexistent"))


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[process.Processes]:
    made = process.Processes(process.Settings(tmp_path / "state"), PREFIX)
    yield made
    for seen in made.allocations():
        made.cancel(seen, only_queued=False)
    until(lambda: all(one.state.has_ended for one in made.allocations()), "all have ended")


def one_seen(made: process.Processes) -> Seen:
    (seen,) = made.allocations()
    return seen


def test_a_process_is_started_until_it_ends_and_how_it_ended_is_known(processes: process.Processes) -> None:
    wait = "until [ -e gate ]; do sleep 0.01; done; echo said; exit"
    for code in (0, 3):
        engine_id = processes.submit(request(f"x{code}", "sh", "-c", f"{wait} {code}"))
        until(lambda: engine_id in [one.engine_id for one in processes.allocations()], "its number is known")  # noqa: B023
    assert [one.state for one in processes.allocations()] == [State.STARTED] * 2
    for code in (0, 3):
        (processes._folder / f"{PREFIX}x{code}" / "gate").touch()
    until(lambda: all(one.state.has_ended for one in processes.allocations()), "both have ended")
    well, badly = processes.allocations()
    assert (well.state, well.reason) == (State.COMPLETED, "")
    assert (badly.state, badly.reason) == (State.FAILED, "Its process ended with exit code 3.")
    assert processes.why(badly) == "Its process ended with exit code 3.\nsaid"


def test_processes_outlive_the_program_that_started_them_and_the_next_finds_them(tmp_path: Path) -> None:
    settings = process.Settings(tmp_path / "state")
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from windrow.fleet.provider import AgentCommand, Request, Shape\nfrom windrow.fleet.providers import process\n"
        "made = process.Processes(process.Settings(Path(sys.argv[1])), sys.argv[2])\n"
        "made.submit(Request(sys.argv[2] + 'x1', Shape(1), None, AgentCommand(('sleep', '600'), {})))\n"
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(settings.folder), PREFIX], check=False)
    assert killed.returncode == -signal.SIGKILL
    after = process.Processes(settings, PREFIX)
    until(lambda: one_seen(after).engine_id, "its number is known")
    seen = one_seen(after)
    assert (seen.name, seen.state) == (f"{PREFIX}x1", State.STARTED)
    assert process.Processes(settings, "f-other-abcdef-").allocations() == []
    assert not after.cancel(seen, only_queued=True), "nothing is queued on this machine"
    assert one_seen(after).state is State.STARTED
    assert after.cancel(seen, only_queued=False)
    until(lambda: one_seen(after).state.has_ended, "it has ended")
    assert one_seen(after).reason == "Its process was ended by SIGTERM."
    assert not after.cancel(seen, only_queued=False)


def test_a_killed_keeper_takes_its_agent_along(processes: process.Processes, tmp_path: Path) -> None:
    pid_file = tmp_path / "agent-pid"
    processes.submit(request("x1", "sh", "-c", f"echo $$ > {pid_file}; exec sleep 600"))
    until(lambda: pid_file.exists() and pid_file.read_text().strip() and one_seen(processes).engine_id, "it runs")
    os.kill(int(one_seen(processes).engine_id.split()[-1]), signal.SIGKILL)
    until(lambda: one_seen(processes).state is State.FAILED, "its end is seen")
    agent = int(pid_file.read_text())
    until(lambda: not Path(f"/proc/{agent}").exists() or "Z" in Path(f"/proc/{agent}/stat").read_text(), "agent ended")


def test_no_process_of_its_user_reads_the_variables_of_a_keeper(processes: process.Processes) -> None:
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from windrow.fleet.provider import AgentCommand, Request, Shape\nfrom windrow.fleet.providers import process\n"
        "made = process.Processes(process.Settings(Path(sys.argv[1])), sys.argv[2])\n"
        "made.submit(Request(sys.argv[2] + 'x1', Shape(1), None, AgentCommand(('sleep', '600'), {})))\n"
    )
    words = [*as_user(), sys.executable, "-c", script, str(processes._folder), PREFIX]
    subprocess.run(words, env={**os.environ, "AWS_SECRET_ACCESS_KEY": "it"}, check=True)
    assert_private(int(one_seen(processes).engine_id.rpartition(" ")[2]))


def test_a_number_that_another_process_has_now_is_no_sign_of_life(processes: process.Processes) -> None:
    folder = processes._folder / f"{PREFIX}x1"
    folder.mkdir(parents=True)
    (folder / "lock").touch()
    (folder / "pid").write_text(str(os.getpid()))
    seen = one_seen(processes)
    assert seen.state is State.FAILED
    assert not processes.cancel(seen, only_queued=False), "nobody is signalled"


def test_a_program_that_is_not_there_is_told(processes: process.Processes) -> None:
    processes.submit(request("x1", "/nonexistent/windrow", "agent"))
    until(lambda: one_seen(processes).state.has_ended, "it has ended")
    assert one_seen(processes).reason == "/nonexistent/windrow cannot be run: No such file or directory."


ENGINE = """\
    import json, os, sys
    told = json.load(sys.stdin)
    jobs = json.load(open("jobs")) if os.path.exists("jobs") else {}
    match sys.argv[1]:
        case "submit":
            if "full" in told["name"]:
                sys.exit("the queue is full")
            if "away" in told["name"]:
                print("try later", file=sys.stderr)
                sys.exit(75)
            job = {"name": told["name"], "id": f"job {len(jobs)}", "state": "queued", "reason": "Priority"}
            jobs[told["name"]] = job
            json.dump(jobs, open("jobs", "w"))
            print(json.dumps({"id": job["id"]}))
        case "list":
            for job in jobs.values():
                print(json.dumps(job))
        case "cancel":
            job = jobs[told["name"]]
            can = job["state"] == "queued" or not told["only_queued"]
            job["state"] = "cancelled" if can else job["state"]
            json.dump(jobs, open("jobs", "w"))
            print(json.dumps({"cancelled": can}))
        case "why":
            print("it waits for", told["id"])
"""


@pytest.fixture
def commands(tmp_path: Path) -> command.Commands:
    (tmp_path / "engine.py").write_text(dedent(ENGINE))
    words = {name: (sys.executable, "engine.py", name) for name in ("submit", "list", "cancel", "why")}
    return command.Commands(command.Settings(**words, timeout_s=60, folder=str(tmp_path)), PREFIX)


def test_commands_submit_list_cancel_and_say_why(commands: command.Commands) -> None:
    assert commands.allocations() == []
    assert commands.submit(request("x1", "windrow", "agent", LANG="C")) == "job 0"
    seen = Seen(f"{PREFIX}x1", "job 0", State.QUEUED, "Priority")
    assert commands.allocations() == [seen]
    assert commands.why(seen) == "it waits for job 0"
    assert commands.cancel(seen, only_queued=True)
    assert commands.allocations() == [seen._replace(state=State.CANCELLED)]
    assert not commands.cancel(seen._replace(state=State.STARTED), only_queued=True)


def test_what_a_command_says_of_its_failure_is_told(commands: command.Commands) -> None:
    with pytest.raises(Refused, match=r"^the queue is full$"):
        commands.submit(request("x-full"))
    with pytest.raises(Unreachable, match=r"^try later$"):
        commands.submit(request("x-away"))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("/nonexistent",), "/nonexistent cannot be run: No such file or directory."),
        (("sh", "-c", "kill -9 $$"), "sh was ended by signal 9."),
        (("sh", "-c", "exit 3"), "sh ended with exit code 3."),
        (("sh", "-c", "echo no json"), "sh wrote a line that is no allocation"),
        (("sh", "-c", 'echo \'{"name": "a", "state": "merry"}\''), "sh wrote a line that is no allocation"),
        (("sleep", "600"), "sleep did not end within 1 s."),
        # Whoever holds the output open is in a session of its own, and lives on.
        (("sh", "-c", "setsid sleep 20 & exec sleep 600"), "sh did not end within 1 s."),
        (("sh", "-c", 'printf "[%070000d" 0 | tr 0 "["'), "sh wrote a line that is no allocation"),
    ],
)
def test_a_list_that_fails_is_no_empty_list(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    made = command.Commands(command.Settings(words, words, words, (), 1, str(tmp_path)), PREFIX)
    with pytest.raises(Unreachable, match=told.replace(".", r"\.")):
        made.allocations()


@pytest.mark.parametrize("script", ["cat /dev/zero", "cat /dev/zero >&2", "cat /dev/zero & cat /dev/zero >&2"])
def test_a_command_that_writes_without_end_takes_little_memory(tmp_path: Path, script: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Unreachable, match=r"sh (wrote more than 32 MiB|did not end within 2 s)"):
        engine_command.run(("sh", "-c", script), stdin=b"", time_limit_s=2)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10


def test_a_command_has_answered_once_it_has_ended_whatever_it_leaves_behind(tmp_path: Path) -> None:
    script = "setsid sh -c 'echo $$ >left; exec sleep 600' & until [ -s left ]; do sleep 0.01; done; echo said; exit 3"
    try:
        done = engine_command.run(("sh", "-c", script), stdin=b"x" * (1 << 20), time_limit_s=600, folder=tmp_path)
        assert done == engine_command.Done(3, b"said\n", b"")
        os.kill(int((tmp_path / "left").read_text()), 0)
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


class _Garbage:
    """An engine that has lost its mind."""

    def submit(self, request: Request) -> str:
        return "\ud800" + "id" * 1000

    def allocations(self) -> list[Seen]:
        return [
            Seen(f"{PREFIX}x1", "9" * 1000, State.FAILED, "\x1b[2J\ud800"),
            Seen(f"{PREFIX}x2", "9", State.STARTED, "postgres://ann:hunter2hunter2@db/x was refused"),
            Seen(f"{PREFIX}../../x", "1", State.STARTED),
            Seen(f"{PREFIX}{'x' * 100}", "2", State.STARTED),
            Seen(f"{PREFIX}\ud800", "3", State.STARTED),
        ]

    def cancel(self, seen: Seen, *, only_queued: bool) -> bool:
        return False

    def why(self, seen: Seen) -> str:
        return "\udfff" * 10_000_000


def test_what_an_engine_says_fits_into_the_messages_of_a_fleet() -> None:
    thread = EngineThread("g", _Garbage())
    thread.submit(request("x1"))
    thread.start()
    events: list[Event] = []

    def listed() -> bool:
        events.extend(thread.events())
        return any(isinstance(one, Listed) for one in events)

    until(listed, "the engine was asked")
    thread.stop()
    thread.join(DEADLINE_S)
    submitted = next(one for one in events if isinstance(one, Submitted))
    seen, second = next(one for one in events if isinstance(one, Listed)).seen
    assert "hunter2" not in second.reason and "was refused" in second.reason
    reports = [Report(submitted.name, "queued", submitted.engine_id), Report(*seen[:1], "failed", seen[1], seen[3])]
    sent = pb.SyncFleetRequest(
        fleet="f", program_incarnation="a1", reports=[report_message("g", report) for report in reports]
    )
    assert why_not_synced(sent) == ""


def test_what_an_engine_says_is_no_formula_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    _print_csv(("name", "reason"), [["one", '=HYPERLINK("http://x")']])
    assert capsys.readouterr().out == 'name,reason\none,"\'=HYPERLINK(""http://x"")"\n'


def test_what_a_command_would_get_is_shown(commands: command.Commands) -> None:
    shown = command.show(commands._settings, request("x1", "windrow", "agent"))
    first, _, rest = shown.partition("\n")
    assert first.endswith("engine.py submit <<'END'")
    assert json.loads(rest.removesuffix("END"))["arguments"] == ["windrow", "agent"]
