"""Where mini-batches run: a served master and real agents, of which one may be broken, small, late or cut off."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from cluster_commands import ServedCluster
from embedded_run import check_words, wait_until

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


def serve(cluster: ServedCluster, script: str, files: int, names: dict[str, int]) -> str:
    """Give the cluster a script, an input and agents of so many slots; returns the rows to expect."""
    (cluster.folder / "code" / "entry.py").write_text(AT.format(folder=str(cluster.folder)) + script)
    for at, old in enumerate(sorted((cluster.folder / "data").iterdir())):
        if at >= files:
            old.unlink()
    for at in range(files):
        (cluster.folder / "data" / f"f{at:05d}").write_text("")
    for name, slots in names.items():
        cluster.start(name, *cluster.agent(name, "right"), "--slots", str(slots))
    for name in names:
        wait_until(lambda name=name: cluster.node(name).get("state") == "ready", f"{name} is ready")  # type: ignore[misc]
    return "".join(f"f{at:05d}\n" for at in range(files))


def wait_set_aside(cluster: ServedCluster) -> None:
    """Wait until `bad` is set aside; the script, too, waits for that."""
    wait_until(lambda: TOLD in cluster.node("bad").get("message", ""), "`node list` tells that bad is set aside")
    (cluster.folder / "told").touch()


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_node_beside_a_healthy_one_costs_no_item(cluster: ServedCluster, how: str) -> None:
    (cluster.folder / "gate").touch()
    expected = serve(cluster, BESIDE_A_BROKEN_NODE.format(broken=BROKEN[how]) + ROWS, 400, {"bad": 2, "good": 2})
    limit = ("--set", "jobs.score.retry_settings.timeout=4") if "long" in how else ()
    cluster.create("nightly", *limit)
    wait_set_aside(cluster)
    since_s = time.monotonic() - TRIAL_S
    done = cluster.run("job", "stream", "nightly")
    assert done.returncode == 0, done.stdout + done.stderr
    trials = int((time.monotonic() - since_s) / TRIAL_S)
    assert cluster.output.read_text() == expected
    (step,) = cluster.job("nightly")["steps"]
    assert step["items"]["ok"] == 400
    failed = sum(step["failed_attempts"].values())
    assert 5 <= failed <= 5 + 2 + trials, f"a handful, what ran beside it, and trials: {step['failed_attempts']}"
    assert "node bad was set aside" in " ".join((done.stdout + done.stderr).split())


def test_that_a_node_is_set_aside_is_told_and_it_comes_back(cluster: ServedCluster) -> None:
    script = BESIDE_A_BROKEN_NODE.format(broken=BROKEN["run() raises"]) + ROWS
    expected = serve(cluster, script, 200, {"bad": 2, "good": 2})
    cluster.create("nightly", "--set", "jobs.score.retry_settings.timeout=600")
    wait_set_aside(cluster)
    assert cluster.node("bad")["state"] == "ready"
    check_words(cluster.run("node", "list").stdout, ["Set aside for step", "the driver of this node is broken"])
    reason = " ".join(cluster.run("job", "explain", "nightly").stdout.split())
    check_words(reason, ["bad is set aside", "in a row failed there"])

    def told_in_the_log() -> bool:
        roles = cluster.state.rglob("master_role*.txt")
        return any("node_set_aside: bad: Set aside" in role.read_text() for role in roles)

    wait_until(told_in_the_log, "it is told in the job's log")
    (cluster.folder / "mended").touch()
    wait_until(lambda: not cluster.node("bad").get("message"), "the mini-batch of a trial succeeds", 10 * TRIAL_S)
    (cluster.folder / "gate").touch()
    assert cluster.run("job", "stream", "nightly").returncode == 0
    assert cluster.output.read_text() == expected


def test_few_long_mini_batches_run_one_a_slot_also_on_nodes_that_come_later(cluster: ServedCluster) -> None:
    begun = cluster.folder / "begun"
    begun.mkdir()
    script = (
        "def run(mini_batch):\n"
        f"    open({str(begun)!r} + '/' + NODE + '-' + NAME(mini_batch[0]), 'w').close()\n"
        "    while not is_there('gate'):\n"
        "        time.sleep(0.01)\n" + ROWS
    )
    expected = serve(cluster, script, 15, {"one": 5})
    cluster.create("nightly")

    def placed() -> dict[str, int]:
        return dict(Counter(path.name.split("-")[0] for path in begun.iterdir()))

    wait_until(lambda: placed() == {"one": 5}, "the first runs what it can")
    assert cluster.job("nightly")["steps"][0]["mini_batches"]["leased"] == 5, "and holds no more"
    for name in ("two", "three"):
        cluster.start(name, *cluster.agent(name, "right"), "--slots", "5")
    wait_until(lambda: placed() == {"one": 5, "two": 5, "three": 5}, "all run at once")
    (cluster.folder / "gate").touch()
    assert cluster.run("job", "stream", "nightly").returncode == 0
    assert cluster.output.read_text() == expected


def test_what_one_node_has_not_begun_goes_to_another_that_is_idle(cluster: ServedCluster) -> None:
    """Short ones first, of which much is held ahead; then long ones, on a node that holds dozens of them."""
    script = (
        "def run(mini_batch):\n"
        "    while NODE == 'one' and NAME(mini_batch[0]) >= 'f00300' and not is_there('gate'):\n"
        "        time.sleep(0.01)\n" + ROWS
    )
    expected = serve(cluster, script, 600, {"one": 2})
    cluster.create("nightly")
    wait_until(lambda: cluster.done("nightly") == 300, "it comes to the long ones")
    cluster.start("two", *cluster.agent("two", "right"), "--slots", "2")
    wait_until(lambda: cluster.done("nightly") == 598, "all but those that the first is at")
    (cluster.folder / "gate").touch()
    assert cluster.run("job", "stream", "nightly").returncode == 0
    assert cluster.output.read_text() == expected


def test_a_node_that_cannot_read_the_input_costs_no_item(cluster: ServedCluster) -> None:
    """As where a share is not mounted."""
    script = (
        "from windrow_worker.loading import FileLoader\n"
        "load = FileLoader.load\n"
        "def unmounted(self, recipe):\n"
        f"    open(os.path.join({str(cluster.folder)!r}, 'begun'), 'w').close()\n"
        "    raise OSError('the share is not mounted')\n"
        "if NODE == 'bad':\n"
        "    FileLoader.load = unmounted\n"
        "def run(mini_batch):\n"
        "    while not is_there('begun'):\n"
        "        time.sleep(0.01)\n" + ROWS
    )
    expected = serve(cluster, script, 100, {"bad": 2, "good": 1})
    cluster.create("nightly")
    done = cluster.run("job", "stream", "nightly")
    assert done.returncode == 0, done.stdout + done.stderr
    assert cluster.output.read_text() == expected
    (step,) = cluster.job("nightly")["steps"]
    assert step["items"]["failed"] == 0 and step["failed_attempts"].keys() == {"load_failed"}


def test_a_script_that_fails_on_all_nodes_sets_none_aside(cluster: ServedCluster) -> None:
    serve(cluster, "def run(mini_batch):\n    raise ValueError('a bug')\n", 60, {"one": 2, "two": 2})
    cluster.create("nightly")
    done = cluster.run("job", "stream", "nightly")
    assert done.returncode == 1, done.stdout + done.stderr
    (step,) = cluster.job("nightly")["steps"]
    assert sum(step["failed_attempts"].values()) == 180, "each has its three tries"
    assert "set aside" not in " ".join((done.stdout + done.stderr).split())
    assert not [warning for warning in cluster.job("nightly")["warnings"] if "set aside" in warning]
