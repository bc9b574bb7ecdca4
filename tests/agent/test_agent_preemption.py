"""The command that says whether an agent's machine is about to be taken away, and those that the documentation has."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from windrow_agent.session import preemption
from windrow_agent.session.preemption import CheckFailed, ask

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "use-spot-machines.md"


def answer(*command: str) -> str:
    return asyncio.run(ask(command))


def test_exit_code_0_with_a_text_is_a_notice_and_1_is_none() -> None:
    assert answer("sh", "-c", "echo 'gone  at'; echo 12:00") == "gone at 12:00"
    assert answer("sh", "-c", "echo nothing yet; exit 1") == ""


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("/nonexistent/check",), "/nonexistent/check cannot be run: No such file or directory"),
        (("true",), "true ended with exit code 0, and printed nothing"),
        (("sh", "-c", "echo no server >&2; exit 2"), "sh ended with exit code 2: no server"),
        (("sh", "-c", "kill -9 $$"), "sh was ended by SIGKILL"),
    ],
)
def test_anything_else_is_a_fault_and_no_notice(command: tuple[str, ...], told: str) -> None:
    with pytest.raises(CheckFailed) as failed:
        answer(*command)
    assert str(failed.value) == told


def test_a_command_that_does_not_end_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "pid"
    monkeypatch.setattr(preemption, "LIMIT_S", 2.0)
    with pytest.raises(CheckFailed, match="sh had not ended after 2 s"):
        answer("sh", "-c", f"sleep 3600 & echo $! > {file}; wait")
    number = int(file.read_text())
    # Whoever is its parent now may not have waited for it yet.
    stat = Path(f"/proc/{number}/stat")
    assert not stat.exists() or stat.read_text().rpartition(") ")[2][0] in "ZX"


def test_what_a_command_leaves_behind_holds_up_no_notice(tmp_path: Path) -> None:
    file = tmp_path / "left"
    left = f"setsid sh -c 'echo $$ >{file}; exec sleep 600' & until [ -s {file} ]; do sleep 0.01; done"
    try:
        assert answer("sh", "-c", f"{left}; head -c 1000000 /dev/zero >&2; echo soon") == "soon"
    finally:
        os.kill(int(file.read_text()), signal.SIGKILL)


def test_a_command_that_writes_without_end_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preemption, "LIMIT_S", 1.0)

    async def ask_in_time() -> str:
        return await asyncio.wait_for(ask(("sh", "-c", "head -c 400000000 /dev/zero; exit 1")), 120)

    with pytest.raises(CheckFailed, match="had not ended after 1 s"):
        asyncio.run(ask_in_time())


def test_a_fault_is_told_once_and_the_notice_is_passed_on_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(preemption, "EVERY_S", 0.01)
    count = tmp_path / "count"
    script = f"echo x >> {count}; [ $(wc -l < {count}) -ge 4 ] && echo taken || exit 2"
    notices: list[str] = []

    async def until_heard() -> None:
        heard = asyncio.Event()

        def notice(why: str) -> None:
            notices.append(why)
            heard.set()

        watching = asyncio.create_task(preemption.watch(("sh", "-c", script), notice))
        await asyncio.wait_for(heard.wait(), 60)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    with caplog.at_level("INFO"):
        asyncio.run(until_heard())
    assert notices == ["taken"]
    assert [record.getMessage() for record in caplog.records if "--preemption-check" in record.getMessage()] == [
        "the command of --preemption-check fails: this agent would not hear that its machine is taken away",
        "the command of --preemption-check works again",
    ]


class _Metadata(BaseHTTPRequestHandler):
    """Answers as the metadata servers of the clouds do: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ and the
    other pages that the documentation names.
    """

    taken: str | None = None
    """The cloud that takes its machine away."""
    is_broken = False

    def do_PUT(self) -> None:
        assert self.path == "/latest/api/token"
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
        self._answer("a-token")

    def do_GET(self) -> None:
        kind = type(self)
        if kind.is_broken:
            self.send_error(500)
        elif self.path == "/latest/meta-data/spot/instance-action":
            assert self.headers["X-aws-ec2-metadata-token"] == "a-token"
            if kind.taken == "ec2":
                self._answer(json.dumps({"action": "terminate", "time": "2026-09-18T08:22:00Z"}))
            else:
                self.send_error(404)
        elif self.path == "/computeMetadata/v1/instance/preempted":
            assert self.headers["Metadata-Flavor"] == "Google"
            self._answer("TRUE" if kind.taken == "google" else "FALSE")
        elif self.path.startswith("/metadata/instance/compute/name?"):
            assert self.headers["Metadata"] == "true"
            self._answer("node-7")
        else:
            assert self.path.startswith("/metadata/scheduledevents?")
            assert self.headers["Metadata"] == "true"
            which = "node-7" if kind.taken == "azure" else "node-8"
            event = {"EventType": "Preempt", "Resources": [which], "NotBefore": "Mon, 19 Sep 2026 18:29:47 GMT"}
            self._answer(json.dumps({"DocumentIncarnation": 1, "Events": [event]}))

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[_Metadata]]:
    class Metadata(_Metadata):
        """Of one test."""

    with HTTPServer(("127.0.0.1", 0), Metadata) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("METADATA", f"http://127.0.0.1:{server.server_port}")
        yield Metadata
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("cloud", "number", "told"),
    [
        ("ec2", 0, 'EC2 says {"action": "terminate", "time": "2026-09-18T08:22:00Z"}'),
        ("azure", 1, "Azure says Preempt Mon, 19 Sep 2026 18:29:47 GMT"),
        ("google", 2, "Compute Engine preempts it"),
    ],
)
def test_the_documented_commands_hear_the_notices_of_clouds(
    metadata: type[_Metadata], tmp_path: Path, cloud: str, number: int, told: str
) -> None:
    scripts = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(scripts) == 3
    file = tmp_path / "notice.py"
    file.write_text(scripts[number])
    assert answer("python3", str(file)) == ""
    metadata.taken = cloud
    assert answer("python3", str(file)) == told
    metadata.is_broken = True
    with pytest.raises(CheckFailed, match="ended with exit code 2"):
        answer("python3", str(file))
