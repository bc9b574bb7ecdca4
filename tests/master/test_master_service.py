"""The master's process: what it says when it cannot serve, and what ends it."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from windrow_master.config import MasterConfig, parse
from windrow_master.core import commands
from windrow_master.core import effects as fx
from windrow_master.core.core import Core
from windrow_master.core.ids import JobKey, StepId
from windrow_master.core.settings import StepSettings
from windrow_master.datastores import Datastores
from windrow_master.files.state_files import StateFiles, StepFiles
from windrow_master.output.concatenation import ConcatenationStopped, OutputFull
from windrow_master.output_places import OutputPlaces
from windrow_master.shell.carrier import Carrier
from windrow_master.shell.finishing import Finish, Finisher
from windrow_master.shell.open_jobs import OpenJobs
from windrow_master.shell.sorted_rows import SortedRows
from windrow_master.shell.starting import Starter
from windrow_master.step_paths import StepPaths
from windrow_master.store.errors import OwnershipLost
from windrow_master.watchers import Watchers

DEADLINE_S = 180.0


def events(state: Path) -> list[dict[str, Any]]:
    """The lines of a master's log."""
    return [json.loads(line) for line in (state / "master.log").read_text().splitlines()]


def test_the_log_of_a_master_whose_address_is_taken_tells_how_it_ended(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = subprocess.run(
            [sys.executable, "-m", "windrow_master", f"--state={state}", f"--listen={address}"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    assert ended.returncode == 2
    assert f"windrow master: The address {address} cannot be used" in ended.stderr
    (last,) = [line for line in events(state) if line["event"] == "master ended"]
    assert last["exit_code"] == 2 and address in last["reason"]


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", "für".encode(), b"a\nb"])
def test_a_join_token_file_without_a_token_admits_nobody(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(OSError, match="does not contain plain text"):
        MasterConfig(tmp_path, "127.0.0.1:0", join_token_file=file).join_token()
    file.write_text("secret\n")
    assert MasterConfig(tmp_path, "127.0.0.1:0", join_token_file=file).join_token() == "secret"


GUARDS = {"--tls-file": "tls.pem", "--join-token-file": "join-token", "--client-token-file": "client-token"}


def refusal_of(folder: Path, capsys: pytest.CaptureFixture[str], listen: str, *options: str) -> str:
    """What a master says that does not start with these options; "" if it would."""
    files = [f"{option}={folder / GUARDS[option]}" if option in GUARDS else option for option in options]
    try:
        parse([f"--state={folder}", f"--listen={listen}", *files])
    except SystemExit as ended:
        assert ended.code == 2
        return capsys.readouterr().err
    return ""


@pytest.mark.parametrize("listen", ["0.0.0.0:8470", ":8470", "[::]:8470", "gpu1.example:8470", "10.0.0.5:8470"])
def test_a_master_that_others_can_reach_needs_tls_and_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], listen: str
) -> None:
    for name in GUARDS.values():
        (tmp_path / name).write_text("something")
    told = refusal_of(tmp_path, capsys, listen)
    assert all(word in told for word in (listen, *GUARDS, "windrow setup", "127.0.0.1", "--insecure"))
    for missing in GUARDS:
        given = [option for option in GUARDS if option != missing]
        told = refusal_of(tmp_path, capsys, listen, *given)
        assert missing in told, given
    assert not refusal_of(tmp_path, capsys, listen, *GUARDS)
    assert not refusal_of(tmp_path, capsys, listen, "--insecure")
    assert "over TLS only" in refusal_of(tmp_path, capsys, listen, "--insecure", "--client-token-file")


@pytest.mark.parametrize(
    ("state", "place", "where"),
    [
        ("state", "state", "is the state folder"),
        ("state", "state/outputs", "is in the state folder"),
        ("store/state", "store", "holds the state folder"),
        ("link/state", "store", "holds the state folder"),
        ("state", "link", "is in the state folder"),
    ],
)
def test_a_datastore_and_the_state_are_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, place: str, where: str
) -> None:
    """Also where links lead; one beside it whose name only begins like the other's is apart."""
    for name in ("state/outputs", "store", "state-2"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to("store" if state.startswith("link") else "state/outputs")

    def refusal(place: str, *options: str) -> str:
        given = [f"--state={tmp_path / state}", "--listen=127.0.0.1:0", f"--datastore=lake={tmp_path / place}"]
        try:
            parse([*given, *options])
        except SystemExit as ended:
            assert ended.code == 2
            return capsys.readouterr().err
        return ""

    told = refusal(place)
    assert f"--datastore lake={os.path.realpath(tmp_path / place)}: this folder {where}" in told
    assert "--state" in told
    assert not refusal("state-2")
    assert not refusal(place, "--embedded")


@pytest.mark.parametrize("option", ["--join-token-file", "--client-token-file", "--tls-file"])
def test_no_secret_of_a_master_is_in_a_datastore(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    (tmp_path / "store" / "keys").mkdir(parents=True)
    for place in ("store/keys/one", "one"):
        (tmp_path / place).write_text("something")
    given = [f"--state={tmp_path / 'state'}", "--listen=127.0.0.1:0", f"--datastore=lake={tmp_path / 'store'}"]
    with pytest.raises(SystemExit):
        parse([*given, f"{option}={tmp_path / 'store/keys/one'}"])
    assert "it is in the datastore lake" in capsys.readouterr().err
    parse([*given, f"{option}={tmp_path / 'one'}"])


@pytest.mark.parametrize("listen", ["127.0.0.1:8470", "localhost:0", "[::1]:8470", "unix:/run/windrow/master"])
def test_a_master_that_only_this_machine_reaches_needs_neither(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], listen: str
) -> None:
    (tmp_path / "client-token").write_text("something")
    assert not refusal_of(tmp_path, capsys, listen)
    assert not refusal_of(tmp_path, capsys, listen, "--client-token-file")


class FailingFinisher(Finisher):
    """Fails as it is told to, in the thread in which outputs are made."""

    def __init__(self, error: Exception) -> None:
        super().__init__(None, lambda row: None, 1, None)  # type: ignore[arg-type]
        self._error = error

    def _finish_once(self, work: Finish, stop: threading.Event) -> Any:
        raise self._error


class CarrierBench:
    """A carrier, what it submits, and what it ends the process for."""

    def __init__(self, core: Core, folder: Path, finisher: Finisher) -> None:
        self.submitted: list[Any] = []
        self.fatal: list[BaseException] = []
        files = StateFiles(folder)
        jobs, sorted_rows = OpenJobs(core, files, Datastores({}), None), SortedRows(files, None, embedded=True)
        self.starter = Starter(jobs, OutputPlaces(folder, [], None), finisher, None, None, sorted_rows, None, None)  # type: ignore[arg-type]
        self.carrier = Carrier(core, jobs, self.starter, finisher, None, Watchers(), sorted_rows)  # type: ignore[arg-type]
        self.carrier.attach(self.submitted.append, self.fatal.append)  # type: ignore[arg-type]


def finished_with(error: Exception, folder: Path) -> tuple[list[Any], list[BaseException]]:
    """What a carrier submits, and what it ends the process for, when an output cannot be made for this reason."""

    async def main() -> tuple[list[Any], list[BaseException]]:
        finisher = FailingFinisher(error)
        bench = CarrierBench(Core(1, 1), folder, finisher)
        await asyncio.wait_for(bench.carrier._finish(work_of(folder), None), DEADLINE_S)
        finisher.close()
        return bench.submitted, bench.fatal

    return asyncio.run(main())


def test_what_waited_for_a_commit_is_not_done_for_a_step_that_has_ended_meanwhile(tmp_path: Path) -> None:
    async def main() -> None:
        core, finisher = Core(1, 1), FailingFinisher(ZeroDivisionError("nobody wants it"))
        bench = CarrierBench(core, tmp_path, finisher)
        settings = (StepSettings("empty", append_row=False), StepSettings("full"))
        for command in (
            commands.SubmitJob("job", "request", b"{}", "digest", settings),
            commands.PlanGroup(StepId(1), None, b'{"done": true}', 0, b"", True, b"{}"),
            commands.CancelJob("job"),
        ):
            core.handle(command, commands.Moment(0.0, 0.0))
        effects = core.take_effects()
        owed = [effect for effect in effects if type(effect) in fx.AFTER_COMMIT]
        assert {fx.PrepareStep, fx.ConcatenateRows} <= {type(effect) for effect in owed}
        bench.carrier.carry_out([effect for effect in effects if effect not in owed])
        bench.carrier.carry_out(owed)
        assert not bench.submitted and not bench.starter._beginning
        finisher.close()

    asyncio.run(main())


def work_of(folder: Path) -> Finish:
    return Finish(
        job_key=JobKey(1),
        job_id="job",
        step_id=StepId(1),
        step_name="score",
        only_step=True,
        generation=1,
        header=None,
        row_format="text",
        missing="",
        reader=b"{}",
        has_failures=False,
        paths=StepPaths({}, {}, None),
        files=StepFiles(folder),
        logs=folder,
    )


def test_an_output_that_nobody_wants_any_more_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow_master.shell.finishing.RETRY_S", 0.01)

    async def main() -> None:
        finisher = FailingFinisher(OutputFull("the disk of the output is full"))
        waits = asyncio.Event()
        finish = asyncio.ensure_future(finisher.finish(work_of(tmp_path), lambda told: waits.set()))
        await asyncio.wait_for(waits.wait(), DEADLINE_S)
        finisher.abandon(StepId(2))
        assert not finish.done()
        finisher.abandon(StepId(1))
        assert await asyncio.wait_for(finish, DEADLINE_S) is None
        finisher.close()

    asyncio.run(main())


class StoppableFinisher(Finisher):
    """Its outputs are done when they are stopped."""

    def __init__(self) -> None:
        super().__init__(None, lambda row: None, 1, None)  # type: ignore[arg-type]
        self.begun = threading.Event()
        self.stopped = False

    def _finish_once(self, work: Finish, stop: threading.Event) -> Any:
        self.begun.set()
        self.stopped = stop.wait(DEADLINE_S)
        raise ConcatenationStopped


def test_an_output_whose_master_ends_is_stopped(tmp_path: Path) -> None:
    async def main() -> None:
        finisher = StoppableFinisher()
        finish = asyncio.ensure_future(finisher.finish(work_of(tmp_path), lambda told: None))
        assert await asyncio.get_running_loop().run_in_executor(None, finisher.begun.wait, DEADLINE_S)
        finish.cancel()
        await asyncio.gather(finish, return_exceptions=True)
        finisher.close()
        assert finisher.stopped

    asyncio.run(main())


class DeafFinisher(Finisher):
    """Its outputs are done when they are let, one by one, whoever stops them."""

    def __init__(self) -> None:
        super().__init__(None, lambda row: None, 1, None)  # type: ignore[arg-type]
        self.begun: queue.Queue[int] = queue.Queue()
        self.let = threading.Semaphore(0)

    def _finish_once(self, work: Finish, stop: threading.Event) -> Any:
        self.begun.put(work.generation)
        assert self.let.acquire(timeout=DEADLINE_S)
        return commands.FinishStep(work.step_id, work.generation)


def test_outputs_of_one_step_are_made_one_after_the_other(tmp_path: Path) -> None:
    """A job that is cancelled while its output is made, and retried at once."""

    async def main() -> None:
        finisher, loop = DeafFinisher(), asyncio.get_running_loop()
        works = [replace(work_of(tmp_path), generation=generation) for generation in (1, 2, 3)]
        makings = []
        for work in works:
            makings.append(asyncio.ensure_future(finisher.finish(work, lambda told: None)))
            if work.generation == 1:
                assert await loop.run_in_executor(None, finisher.begun.get, True, DEADLINE_S) == 1
            await asyncio.sleep(0)
            if work.generation < 3:
                finisher.abandon(StepId(1))
        assert finisher.begun.empty()
        finisher.let.release(2)
        ended = await asyncio.wait_for(asyncio.gather(*makings), DEADLINE_S)
        assert ended == [commands.FinishStep(StepId(1), 1), None, commands.FinishStep(StepId(1), 3)]
        assert finisher.begun.get() == 3 and finisher.begun.empty()
        finisher.close()

    asyncio.run(main())


def test_outputs_of_one_step_whose_master_ends_are_given_up(tmp_path: Path) -> None:
    async def main() -> None:
        finisher, loop = DeafFinisher(), asyncio.get_running_loop()
        makings = [asyncio.ensure_future(finisher.finish(work_of(tmp_path), lambda told: None)) for _ in range(2)]
        await loop.run_in_executor(None, finisher.begun.get, True, DEADLINE_S)
        for making in reversed(makings):
            making.cancel()
        ended = await asyncio.gather(*makings, return_exceptions=True)
        assert [type(end) for end in ended] == [asyncio.CancelledError] * 2
        finisher.let.release()
        finisher.close()

    asyncio.run(main())


def test_an_output_that_raises_the_unforeseen_fails_its_step(tmp_path: Path) -> None:
    (command,), fatal = finished_with(ZeroDivisionError("planted"), tmp_path)
    assert isinstance(command, commands.FailStep) and "planted" in command.message
    assert not fatal


def test_an_output_that_another_master_owns_ends_this_one(tmp_path: Path) -> None:
    submitted, (fatal,) = finished_with(OwnershipLost("another master"), tmp_path)
    assert not submitted and isinstance(fatal, OwnershipLost)
