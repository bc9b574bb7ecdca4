"""GPUs, with real agents and workers, over a stand-in for NVIDIA's library (`standin_nvml.c`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_commands import FILES, ServedCluster
from embedded_run import check_words, wait_until
from standin_gpus import VERSION_MISMATCH, Gpu, StandInGpus

TWO = (Gpu("GPU-aaaa-1"), Gpu("GPU-bbbb-2"))
GIB = 1 << 30


class GpuCluster(ServedCluster):
    """A cluster whose agents find the stand-in."""

    gpus: StandInGpus
    given: str | None = None
    """The agents' own CUDA_VISIBLE_DEVICES."""

    def environment(self) -> dict[str, str]:
        given = {} if self.given is None else {"CUDA_VISIBLE_DEVICES": self.given}
        return {**super().environment(), **self.gpus.environment, **given}

    def script(self, text: str) -> None:
        (self.folder / "code" / "entry.py").write_text(self.gpus.script(text))

    def workers(self, name: str = "one") -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.node(name).get("processes", [])
        return found


@pytest.fixture
def gpu_cluster(tmp_path: Path) -> Iterator[GpuCluster]:
    place = tmp_path / "standin"
    place.mkdir()
    (tmp_path / "cluster").mkdir()
    cluster = GpuCluster(tmp_path / "cluster")
    cluster.gpus = StandInGpus(place)
    cluster.gpus.has(TWO)
    try:
        cluster.start_master()
        yield cluster
    finally:
        cluster.end()


HALF = """\
def init():
    use(9 * 1024, 40)

def run(mini_batch):
    sees()
    wait_for("go")
    return [os.path.basename(path) for path in mini_batch]
"""


def test_two_workers_share_a_gpu_and_what_they_use_of_it_is_shown(gpu_cluster: GpuCluster) -> None:
    gpu_cluster.script(HALF)
    gpu_cluster.start_agent("one")
    gpu_cluster.create("nightly", "--set", "jobs.score.resources.gpus_per_worker=0.5")

    def shared() -> bool:
        told = [worker["gpu"] for worker in gpu_cluster.workers() if worker["gpu"]]
        return [(one["places"], one["share"], one["memory_bytes"]) for one in told] == [([0], 0.5, 9 * GIB)] * 2

    wait_until(shared, "both workers have half of the first GPU, and their memory there is told")
    assert [gpu["device"] for gpu in gpu_cluster.node("one")["gpus"]] == ["GPU-aaaa-1", "GPU-bbbb-2"]
    shown = gpu_cluster.run("node", "list").stdout
    check_words(shown, ["NVIDIA A100-SXM4-40GB", "process000 (50% of it, 9.7 GB, busy 40%)", "process001"])
    gpu_cluster.gpus.mark("go")
    gpu_cluster.check_done("nightly")
    assert gpu_cluster.gpus.seen() == {"GPU-aaaa-1"}


GREEDY = """\
def run(mini_batch):
    if os.path.basename(mini_batch[0]) == "f00003":
        use(30 * 1024, 90)
        time.sleep(600)
    return [os.path.basename(path) for path in mini_batch]
"""


def test_a_worker_that_takes_far_more_than_its_share_ends_as_oom(gpu_cluster: GpuCluster) -> None:
    gpu_cluster.script(GREEDY)
    gpu_cluster.start_agent("one")
    gpu_cluster.create(
        "nightly", "--set", "jobs.score.resources.gpus_per_worker=0.5", "--set", "jobs.score.retry_settings.timeout=300"
    )
    wait_until(lambda: gpu_cluster.job("nightly")["state"] not in ("queued", "running"), "the job ends", 120)
    told = gpu_cluster.run("job", "explain", "nightly").stdout
    check_words(told, ["oom", "32.2 GB of the memory of GPU 0", "their share is 21.5 GB", "gpus_per_worker"])
    (step,) = gpu_cluster.job("nightly")["steps"]
    assert (step["mini_batches"]["succeeded"], step["mini_batches"]["failed"]) == (FILES - 1, 1)
    assert step["failed_attempts"].keys() == {"oom"}


LAST = """\
def init():
    use(1024, 0)

def run(mini_batch):
    if os.path.basename(mini_batch[0]) == "f00000":
        wait_for("go")
    return [os.path.basename(path) for path in mini_batch]
"""


def test_a_worker_without_a_mini_batch_gives_back_a_gpu_that_it_does_not_use(gpu_cluster: GpuCluster) -> None:
    gpu_cluster.script(LAST)
    gpu_cluster.start_agent("one")
    gpu_cluster.create(
        *("nightly", "--set", "jobs.score.resources.gpus_per_worker=1"),
        *("--set", "jobs.score.task.program_arguments=--idle_gpu_timeout 3"),
        *("--set", "jobs.score.retry_settings.timeout=300"),
    )
    wait_until(lambda: gpu_cluster.done("nightly") == FILES - 1, "one is left")
    wait_until(lambda: len(gpu_cluster.workers()) == 1, "the worker that has none has ended")
    assert gpu_cluster.workers()[0]["phase"] == "running", "the one that has a mini-batch stays"
    gpu_cluster.gpus.mark("go")
    assert gpu_cluster.check_done("nightly")["mini_batches"]["succeeded"] == FILES
    assert not gpu_cluster.job("nightly")["steps"][0]["failed_attempts"], "nothing is charged"


WAITS = """\
def run(mini_batch):
    use(1024, 50)
    sees()
    wait_for("go")
    return [os.path.basename(path) for path in mini_batch]
"""


def test_a_gpu_that_is_lost_costs_no_try_and_comes_back(gpu_cluster: GpuCluster) -> None:
    gpu_cluster.script(WAITS)
    gpu_cluster.start_agent("one")
    gpu_cluster.create(
        *("nightly", "--set", "jobs.score.resources.gpus_per_worker=1"),
        *("--set", "jobs.score.retry_settings.max_retries=0", "--set", "jobs.score.retry_settings.timeout=300"),
    )
    wait_until(lambda: sum(one["phase"] == "running" for one in gpu_cluster.workers()) == 2, "both GPUs are at work")
    gpu_cluster.gpus.has([TWO[0]._replace(state="lost"), TWO[1]])
    wait_until(lambda: [one["gpu"]["places"] for one in gpu_cluster.workers()] == [[1]], "the other GPU works on")
    check_words(gpu_cluster.run("node", "list").stdout, ["1 of 2", "has fallen off the bus"])
    check_words(gpu_cluster.run("doctor").stdout, ["GPUs cannot be used: GPU 0 (GPU-aaaa-1)", "fallen off the bus"])
    gpu_cluster.gpus.has(TWO)
    wait_until(lambda: len(gpu_cluster.workers()) == 2, "it is used again", 60)
    gpu_cluster.gpus.mark("go")
    assert gpu_cluster.check_done("nightly")["mini_batches"]["succeeded"] == FILES
    assert "charged" not in gpu_cluster.run("job", "show", "nightly").stdout


def test_a_driver_that_does_not_fit_or_hangs_is_told_and_ends_no_agent(gpu_cluster: GpuCluster) -> None:
    gpu_cluster.gpus.refuses(VERSION_MISMATCH)
    gpu_cluster.start_agent("sick")
    wait_until(lambda: "different versions" in gpu_cluster.node("sick")["gpu_trouble"], "why it has no GPUs is told")
    check_words(gpu_cluster.run("doctor").stdout, ["different versions", "restart the machine"])
    gpu_cluster.gpus.refuses(None)
    gpu_cluster.start_agent("one")
    wait_until(
        lambda: any(gpu["memory_bytes"] == 40 * GIB for gpu in gpu_cluster.node("one")["gpus"]), "the GPUs are measured"
    )
    gpu_cluster.gpus.hangs(True)
    wait_until(lambda: "has not answered" in gpu_cluster.node("one")["gpu_trouble"], "that it hangs is told", 60)
    gpu_cluster.script("def run(mini_batch):\n    return [os.path.basename(path) for path in mini_batch]\n")
    gpu_cluster.create("nightly")
    gpu_cluster.check_done("nightly")
    gpu_cluster.gpus.hangs(False)
    wait_until(lambda: not gpu_cluster.node("one")["gpu_trouble"], "that it answers again is told", 60)


def test_what_the_agent_was_given_is_what_workers_get(gpu_cluster: GpuCluster) -> None:
    gpu_cluster.script(WAITS.replace("use(1024, 50)", "pass"))
    gpu_cluster.gpus.mark("go")
    gpu_cluster.given = "GPU-bbbb"
    gpu_cluster.start_agent("one")
    gpu_cluster.create("nightly", "--set", "jobs.score.resources.gpus_per_worker=1")
    gpu_cluster.check_done("nightly")
    assert gpu_cluster.gpus.seen() == {"GPU-bbbb"}
    wait_until(
        lambda: any(gpu["model"] for gpu in gpu_cluster.node("one")["gpus"]),
        "it is known which of the driver's that is",
    )
    assert json.loads(gpu_cluster.run("node", "list", "--format", "json").stdout)[0]["gpu_count"] == 1


def test_a_node_with_less_shared_memory_than_a_step_asks_for_says_so(gpu_cluster: GpuCluster) -> None:
    gpu_cluster.start_agent("one")
    gpu_cluster.create("nightly", "--set", "jobs.score.resources.shm_size=900000g")
    gpu_cluster.run("job", "stream", "nightly")
    told = gpu_cluster.run("job", "explain", "nightly").stdout
    check_words(told, ["of shared memory (resources.shm_size), and /dev/shm of this node has", "--shm-size"])
    gpu_cluster.create("small", "--set", "jobs.score.resources.shm_size=1m")
    gpu_cluster.check_done("small")
