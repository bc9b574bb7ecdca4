"""Where mini-batches run: a served master and real agents, of which one may be broken, small, late or cut off."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from embedded_run import check_words, wait_until
from fleet_commands import Fleet

VARIABLES = "jobs.score.environment_variables"
AT = "import os, re, time\nNODE = re.search(r'folder-([a-z0-9]+)', os.getcwd()).group(1)\nNAME = os.path.basename\n"
BROKEN = {
    "run() raises": "        raise RuntimeError('the driver of this node is broken')\n",
    "its process dies": "        os._exit(3)\n",
    "run() takes too long": "        time.sleep(3600)\n",
}
BAD = (
    "DONE = 0\n"
    "def begun():\n"
    "    return os.path.exists(os.environ['BEGUN']) and os.path.getsize(os.environ['BEGUN'])\n"
    "def run(mini_batch):\n"
    "    global DONE\n"
    "    while NODE == 'good' and begun() < int(os.environ['TRIES']):\n"
    "        time.sleep(0.01)  # however late the other starts\n"
    "    if NODE == 'bad' and not os.path.exists(os.environ['MENDED']):\n"
    "        with open(os.environ['BEGUN'], 'a') as file: file.write('.')\n"
)
ROWS = "    return [NAME(path) for path in mini_batch]\n"


def variables(fleet: Fleet, tries: int) -> list[str]:
    """What `BAD` reads; a good node waits until a bad one has begun so many mini-batches."""
    names = {"MENDED": fleet.folder / "mended", "BEGUN": fleet.folder / "begun-there", "TRIES": tries}
    return [word for name, value in names.items() for word in ("--set", f"{VARIABLES}.{name}={value}")]


def serve(fleet: Fleet, script: str, files: int, names: dict[str, int]) -> str:
    """Give the fleet a script, an input and agents of so many slots; returns the rows to expect."""
    (fleet.folder / "code" / "entry.py").write_text(AT + script)
    for at, old in enumerate(sorted((fleet.folder / "data").iterdir())):
        if at >= files:
            old.unlink()
    for at in range(files):
        (fleet.folder / "data" / f"f{at:05d}").write_text("")
    for name, slots in names.items():
        fleet.start(name, *fleet.agent(name, "right"), "--slots", str(slots))
    for name in names:
        wait_until(lambda name=name: fleet.node(name).get("state") == "ready", f"{name} is ready")  # type: ignore[misc]
    return "".join(f"f{at:05d}\n" for at in range(files))


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_node_beside_a_healthy_one_costs_no_item(fleet: Fleet, how: str) -> None:
    expected = serve(fleet, BAD + BROKEN[how] + "    time.sleep(0.05)\n" + ROWS, 400, {"bad": 2, "good": 2})
    limit = ("--set", "jobs.score.retry_settings.timeout=2") if "long" in how else ()
    fleet.create("nightly", *variables(fleet, 1 if limit else 5), *limit)
    done = fleet.run("job", "stream", "nightly")
    assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.output.read_text() == expected
    (step,) = fleet.job("nightly")["steps"]
    assert step["items"]["ok"] == 400
    failed = sum(step["failed_attempts"].values())
    assert 0 < failed <= 5 + 2 + 2, f"a handful, what ran beside it, and a trial or two: {step['failed_attempts']}"
    assert "node bad was set aside" in " ".join((done.stdout + done.stderr).split())


def test_that_a_node_is_set_aside_is_told_and_it_comes_back(fleet: Fleet) -> None:
    gate = fleet.folder / "gate"
    script = (
        BAD + BROKEN["run() raises"] + "    DONE += 1\n"
        f"    while NODE == 'good' and DONE > 15 and not os.path.exists({str(gate)!r}):\n"
        "        time.sleep(0.01)\n" + ROWS
    )
    expected = serve(fleet, script, 200, {"bad": 2, "good": 2})
    fleet.create("nightly", *variables(fleet, 5), "--set", "jobs.score.retry_settings.timeout=600")
    told = "Set aside for step 'score' of nightly"
    wait_until(lambda: told in fleet.node("bad").get("message", ""), "it is told in `node list`")
    assert fleet.node("bad")["state"] == "ready"
    check_words(fleet.run("node", "list").stdout, ["Set aside for step", "the driver of this node is broken"])
    reason = " ".join(fleet.run("job", "explain", "nightly").stdout.split())
    check_words(reason, ["bad is set aside", "in a row failed there"])

    def told_in_the_log() -> bool:
        roles = (fleet.folder / "master-state").rglob("master_role*.txt")
        return any("node_set_aside: bad: Set aside" in role.read_text() for role in roles)

    wait_until(told_in_the_log, "it is told in the job's log")
    (fleet.folder / "mended").touch()
    wait_until(lambda: not fleet.node("bad").get("message"), "the mini-batch after half a minute succeeds")
    gate.touch()
    assert fleet.run("job", "stream", "nightly").returncode == 0
    assert fleet.output.read_text() == expected


def test_few_long_mini_batches_run_one_a_slot_also_on_nodes_that_come_later(fleet: Fleet) -> None:
    gate, begun = fleet.folder / "gate", fleet.folder / "begun"
    begun.mkdir()
    script = (
        "def run(mini_batch):\n"
        f"    open({str(begun)!r} + '/' + NODE + '-' + NAME(mini_batch[0]), 'w').close()\n"
        f"    while not os.path.exists({str(gate)!r}):\n"
        "        time.sleep(0.01)\n" + ROWS
    )
    expected = serve(fleet, script, 15, {"one": 5})
    fleet.create("nightly")

    def placed() -> dict[str, int]:
        return dict(Counter(path.name.split("-")[0] for path in begun.iterdir()))

    wait_until(lambda: placed() == {"one": 5}, "the first runs what it can")
    assert fleet.job("nightly")["steps"][0]["mini_batches"]["leased"] == 5, "and holds no more"
    for name in ("two", "three"):
        fleet.start(name, *fleet.agent(name, "right"), "--slots", "5")
    wait_until(lambda: placed() == {"one": 5, "two": 5, "three": 5}, "all run at once")
    gate.touch()
    assert fleet.run("job", "stream", "nightly").returncode == 0
    assert fleet.output.read_text() == expected


def test_what_one_node_has_not_begun_goes_to_another_that_is_idle(fleet: Fleet) -> None:
    """Short ones first, of which much is held ahead; then long ones, on a node that holds dozens of them."""
    gate = fleet.folder / "gate"
    script = (
        "def run(mini_batch):\n"
        f"    while NODE == 'one' and NAME(mini_batch[0]) >= 'f00300' and not os.path.exists({str(gate)!r}):\n"
        "        time.sleep(0.01)\n" + ROWS
    )
    expected = serve(fleet, script, 600, {"one": 2})
    fleet.create("nightly")
    wait_until(lambda: fleet.done("nightly") == 300, "it comes to the long ones")
    fleet.start("two", *fleet.agent("two", "right"), "--slots", "2")
    wait_until(lambda: fleet.done("nightly") == 598, "all but those that the first is at")
    gate.touch()
    assert fleet.run("job", "stream", "nightly").returncode == 0
    assert fleet.output.read_text() == expected


def test_a_node_that_cannot_read_the_input_is_no_loss(fleet: Fleet) -> None:
    """load_failed on one node: as where a share is not mounted."""
    script = (
        "import builtins\n"
        "def run(mini_batch):\n"
        "    for path in mini_batch:\n"
        "        open(path if NODE != 'bad' else '/not/mounted' + path).close()\n" + ROWS
    )
    expected = serve(fleet, script, 100, {"bad": 2, "good": 1})
    fleet.create("nightly")
    assert fleet.run("job", "stream", "nightly").returncode == 0
    assert fleet.output.read_text() == expected
    assert json.loads(fleet.run("job", "show", "nightly", "-o", "json").stdout)["steps"][0]["items"]["failed"] == 0


def test_a_script_that_fails_on_all_nodes_sets_none_aside(fleet: Fleet, tmp_path: Path) -> None:
    serve(fleet, "def run(mini_batch):\n    raise ValueError('a bug')\n", 60, {"one": 2, "two": 2})
    fleet.create("nightly")
    done = fleet.run("job", "stream", "nightly")
    assert done.returncode == 1, done.stdout + done.stderr
    assert not fleet.node("one")["message"] and not fleet.node("two")["message"]
    assert sum(fleet.job("nightly")["steps"][0]["failed_attempts"].values()) == 180, "each has its three tries"
