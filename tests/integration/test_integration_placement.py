"""Where mini-batches run: a served master and real agents, of which one may be broken, small, late or cut off."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from embedded_run import check_words, wait_until
from fleet_commands import Fleet

AT = (
    "import os, re, time\n"
    "NODE = re.findall(r'folder-([a-z0-9]+)', os.getcwd())[-1]\n"
    "NAME = os.path.basename\n"
    "def is_there(name):\n"
    "    return os.path.exists(os.path.join({folder!r}, name))\n"
)
BROKEN = {
    "run() raises": "raise RuntimeError('the driver of this node is broken')",
    "its process dies": "os._exit(3)",
    "run() takes too long": "time.sleep(3600)",
}
BESIDE_A_BROKEN_NODE = (
    "def run(mini_batch):\n"
    "    if NODE == 'bad' and not is_there('mended'):\n"
    "        {broken}\n"
    "    end = time.monotonic() + 0.4\n"
    "    while NODE == 'good' and not is_there('told') and time.monotonic() < end:\n"
    "        time.sleep(0.01)  # the work is not over before the other is set aside\n"
    "    while NODE == 'good' and is_there('told') and not is_there('gate'):\n"
    "        time.sleep(0.01)\n"
)
ROWS = "    return [NAME(path) for path in mini_batch]\n"
TOLD = "Set aside for step 'score' of nightly"
TRIAL_S = 30.0
"""So long a node that was set aside waits for its first trial."""


def serve(fleet: Fleet, script: str, files: int, names: dict[str, int]) -> str:
    """Give the fleet a script, an input and agents of so many slots; returns the rows to expect."""
    (fleet.folder / "code" / "entry.py").write_text(AT.format(folder=str(fleet.folder)) + script)
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


def wait_set_aside(fleet: Fleet) -> None:
    """Wait until `bad` is set aside; the script, too, waits for that."""
    wait_until(lambda: TOLD in fleet.node("bad").get("message", ""), "`node list` tells that bad is set aside")
    (fleet.folder / "told").touch()


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_node_beside_a_healthy_one_costs_no_item(fleet: Fleet, how: str) -> None:
    (fleet.folder / "gate").touch()
    expected = serve(fleet, BESIDE_A_BROKEN_NODE.format(broken=BROKEN[how]) + ROWS, 400, {"bad": 2, "good": 2})
    limit = ("--set", "jobs.score.retry_settings.timeout=4") if "long" in how else ()
    fleet.create("nightly", *limit)
    wait_set_aside(fleet)
    since_s = time.monotonic() - TRIAL_S
    done = fleet.run("job", "stream", "nightly")
    assert done.returncode == 0, done.stdout + done.stderr
    trials = int((time.monotonic() - since_s) / TRIAL_S)
    assert fleet.output.read_text() == expected
    (step,) = fleet.job("nightly")["steps"]
    assert step["items"]["ok"] == 400
    failed = sum(step["failed_attempts"].values())
    assert 5 <= failed <= 5 + 2 + trials, f"a handful, what ran beside it, and trials: {step['failed_attempts']}"
    assert "node bad was set aside" in " ".join((done.stdout + done.stderr).split())


def test_that_a_node_is_set_aside_is_told_and_it_comes_back(fleet: Fleet) -> None:
    script = BESIDE_A_BROKEN_NODE.format(broken=BROKEN["run() raises"]) + ROWS
    expected = serve(fleet, script, 200, {"bad": 2, "good": 2})
    fleet.create("nightly", "--set", "jobs.score.retry_settings.timeout=600")
    wait_set_aside(fleet)
    assert fleet.node("bad")["state"] == "ready"
    check_words(fleet.run("node", "list").stdout, ["Set aside for step", "the driver of this node is broken"])
    reason = " ".join(fleet.run("job", "explain", "nightly").stdout.split())
    check_words(reason, ["bad is set aside", "in a row failed there"])

    def told_in_the_log() -> bool:
        roles = fleet.state.rglob("master_role*.txt")
        return any("node_set_aside: bad: Set aside" in role.read_text() for role in roles)

    wait_until(told_in_the_log, "it is told in the job's log")
    (fleet.folder / "mended").touch()
    wait_until(lambda: not fleet.node("bad").get("message"), "the mini-batch of a trial succeeds", 10 * TRIAL_S)
    (fleet.folder / "gate").touch()
    assert fleet.run("job", "stream", "nightly").returncode == 0
    assert fleet.output.read_text() == expected


def test_few_long_mini_batches_run_one_a_slot_also_on_nodes_that_come_later(fleet: Fleet) -> None:
    begun = fleet.folder / "begun"
    begun.mkdir()
    script = (
        "def run(mini_batch):\n"
        f"    open({str(begun)!r} + '/' + NODE + '-' + NAME(mini_batch[0]), 'w').close()\n"
        "    while not is_there('gate'):\n"
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
    (fleet.folder / "gate").touch()
    assert fleet.run("job", "stream", "nightly").returncode == 0
    assert fleet.output.read_text() == expected


def test_what_one_node_has_not_begun_goes_to_another_that_is_idle(fleet: Fleet) -> None:
    """Short ones first, of which much is held ahead; then long ones, on a node that holds dozens of them."""
    script = (
        "def run(mini_batch):\n"
        "    while NODE == 'one' and NAME(mini_batch[0]) >= 'f00300' and not is_there('gate'):\n"
        "        time.sleep(0.01)\n" + ROWS
    )
    expected = serve(fleet, script, 600, {"one": 2})
    fleet.create("nightly")
    wait_until(lambda: fleet.done("nightly") == 300, "it comes to the long ones")
    fleet.start("two", *fleet.agent("two", "right"), "--slots", "2")
    wait_until(lambda: fleet.done("nightly") == 598, "all but those that the first is at")
    (fleet.folder / "gate").touch()
    assert fleet.run("job", "stream", "nightly").returncode == 0
    assert fleet.output.read_text() == expected


def test_a_node_that_cannot_read_the_input_costs_no_item(fleet: Fleet) -> None:
    """As where a share is not mounted."""
    script = (
        "from windrow_worker.loading import FileLoader\n"
        "load = FileLoader.load\n"
        "def unmounted(self, recipe):\n"
        f"    open(os.path.join({str(fleet.folder)!r}, 'begun'), 'w').close()\n"
        "    raise OSError('the share is not mounted')\n"
        "if NODE == 'bad':\n"
        "    FileLoader.load = unmounted\n"
        "def run(mini_batch):\n"
        "    while not is_there('begun'):\n"
        "        time.sleep(0.01)\n" + ROWS
    )
    expected = serve(fleet, script, 100, {"bad": 2, "good": 1})
    fleet.create("nightly")
    done = fleet.run("job", "stream", "nightly")
    assert done.returncode == 0, done.stdout + done.stderr
    assert fleet.output.read_text() == expected
    (step,) = fleet.job("nightly")["steps"]
    assert step["items"]["failed"] == 0 and step["failed_attempts"].keys() == {"load_failed"}


def test_a_script_that_fails_on_all_nodes_sets_none_aside(fleet: Fleet) -> None:
    serve(fleet, "def run(mini_batch):\n    raise ValueError('a bug')\n", 60, {"one": 2, "two": 2})
    fleet.create("nightly")
    done = fleet.run("job", "stream", "nightly")
    assert done.returncode == 1, done.stdout + done.stderr
    (step,) = fleet.job("nightly")["steps"]
    assert sum(step["failed_attempts"].values()) == 180, "each has its three tries"
    assert "set aside" not in " ".join((done.stdout + done.stderr).split())
    assert not [warning for warning in fleet.job("nightly")["warnings"] if "set aside" in warning]
