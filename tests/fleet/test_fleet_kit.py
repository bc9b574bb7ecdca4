"""The providers of this machine keep the contract of providers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from windrow.fleet import provider_kit
from windrow.fleet.providers import command, process

ENGINE = """\
import json, sys
from pathlib import Path
from windrow.fleet.provider import AgentCommand, Request, Seen, Shape, State
from windrow.fleet.providers import process

told = json.load(sys.stdin)
made = process.Processes(process.Settings(Path("state")), told.get("prefix", ""))
if sys.argv[1] == "submit":
    agent = AgentCommand(tuple(told["arguments"]), told["environment"], told["folder"])
    print(json.dumps({"id": made.submit(Request(told["name"], Shape(told["slots"]), told["lifetime_s"], agent))}))
elif sys.argv[1] == "list":
    for one in made.allocations():
        print(json.dumps({"name": one.name, "id": one.engine_id, "state": one.state.value, "reason": one.reason}))
else:
    seen = Seen(told["name"], told["id"], State(told["state"]))
    if sys.argv[1] == "why":
        print(made.why(seen))
    else:
        print(json.dumps({"cancelled": made.cancel(seen, only_queued=told["only_queued"])}))
"""


@pytest.fixture(params=["process", "command"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> provider_kit.Engine:
    if request.param == "process":
        return provider_kit.Engine(make=lambda prefix: process.Processes(process.Settings(tmp_path / "state"), prefix))
    (tmp_path / "engine.py").write_text(ENGINE)
    words = {name: (sys.executable, "engine.py", name) for name in ("submit", "list", "cancel", "why")}
    settings = command.Settings(**words, timeout_s=60, folder=str(tmp_path))
    return provider_kit.Engine(make=lambda prefix: command.Commands(settings, prefix))


@pytest.mark.parametrize("check", provider_kit.CHECKS, ids=lambda check: check.__name__)
def test_providers_of_this_machine_keep_the_contract(
    engine: provider_kit.Engine, check: Callable[[provider_kit.Engine], None]
) -> None:
    check(engine)
