"""What an agent makes of what a driver says of GPUs: which are whose, what workers use of them, what MPS is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standin_gpus import VERSION_MISMATCH, Gpu, StandInGpus
from windrow.rpc.v1 import work_pb2 as work
from windrow_agent.node.gpu_driver import NO_BINDINGS, Amd, ProcessUse, Reading, Readings
from windrow_agent.node.gpu_use import FAR_BEYOND, LOOKS_BEYOND, Held, Use, UseOverTime, is_far_beyond, uses
from windrow_agent.node.gpu_watch import DriverProcess, DriverSilent, GpuWatch
from windrow_agent.node.gpus import AMD, GpuIndices, find_gpus, listed_by_kernel, places_of
from windrow_agent.node.mps import client_variables, pipe_folder
from windrow_agent.workers.death import Exit, explain
from windrow_agent.workers.page import Phase

GIB = 1 << 30


def gpu(device: str, *processes: ProcessUse, used: int | None = GIB, percent: float | None = 0.0) -> Reading:
    return Reading(device, int(device[-1]), "A100", 40 * GIB, used, percent, processes)


def asked(seconds: float = 20.0) -> Readings:
    """What the process says that asks the driver, or why it says nothing."""
    process = DriverProcess()
    try:
        process.start()
        return process.wait(seconds)
    except DriverSilent as silent:
        return Readings(trouble=str(silent))
    finally:
        process.close()


# What the driver says.


def test_the_driver_is_asked_by_the_names_of_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standin = StandInGpus(tmp_path)
    for name, value in standin.environment.items():
        monkeypatch.setenv(name, value)
    assert not asked().devices and not asked().trouble
    standin.has([Gpu("GPU-a", used_mib=512, busy=40), Gpu("GPU-b", state="lost")])
    (standin.place / "process-1").write_text(f"GPU-a|{os.getpid()}|256|33\n")
    found = asked()
    assert found.vendor == "nvidia" and not found.trouble
    first, second = found.devices
    assert first == Reading(
        *("GPU-a", 0, "NVIDIA A100-SXM4-40GB", 40 * GIB, GIB // 2, 40.0),
        (ProcessUse(os.getpid(), GIB // 4, 33.0),),
    )
    assert second.device == "" and "fallen off the bus" in second.trouble
    standin.has([Gpu("GPU-a", state="mig-on"), Gpu("MIG-1", 20480, state="mig 0"), Gpu("MIG-2", 20480, state="mig 0")])
    assert [(one.device, one.number, one.percent) for one in asked().devices] == [
        ("MIG-1", 0, None),
        ("MIG-2", 0, None),
    ], "parts are named, not the GPU; NVML does not say how busy a part is"
    standin.refuses(VERSION_MISMATCH)
    assert "different versions" in asked().trouble
    standin.hangs(True)
    standin.refuses(None)
    assert "has not answered for 1 s" in asked(1.0).trouble


def test_without_the_bindings_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standin = StandInGpus(tmp_path)
    standin.has([Gpu("GPU-a")])
    (tmp_path / "pynvml.py").write_text("raise ImportError\n")
    for name, value in {**standin.environment, "PYTHONPATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    assert asked() == Readings("nvidia", trouble=NO_BINDINGS)


def test_a_process_that_asks_and_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    standin = StandInGpus(tmp_path)
    (tmp_path / "pynvml.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    for name, value in {**standin.environment, "PYTHONPATH": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    assert asked().trouble == "the process that asks the driver of the GPUs was killed by signal 11"


def amd_tree(folder: Path) -> Amd:
    """As the kernel shows a machine with a processor and two GPUs, of which one has no unique id."""
    files = {
        "kfd/topology/nodes/0/properties": "cpu_cores_count 16\nsimd_count 0\n",
        "kfd/topology/nodes/1/properties": "simd_count 440\nunique_id 10672365836\ndrm_render_minor 128\n",
        "kfd/topology/nodes/1/gpu_id": "5432\n",
        "kfd/topology/nodes/1/name": "gfx942\n",
        "kfd/topology/nodes/2/properties": "simd_count 440\nunique_id 0\ndrm_render_minor 129\n",
        "kfd/topology/nodes/2/gpu_id": "777\n",
        "kfd/topology/nodes/2/name": "gfx90a\n",
        "kfd/proc/4321/vram_5432": f"{3 * GIB}\n",
        "kfd/proc/4321/vram_777": "0\n",
        "drm/renderD128/device/mem_info_vram_total": f"{64 * GIB}\n",
        "drm/renderD128/device/mem_info_vram_used": f"{4 * GIB}\n",
        "drm/renderD128/device/gpu_busy_percent": "37\n",
        "drm/renderD128/device/product_name": "Instinct MI300X\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return Amd(folder / "kfd", folder / "drm")


def test_gpus_of_amd_are_read_from_the_kernels_files(tmp_path: Path) -> None:
    found = amd_tree(tmp_path).look()
    assert found.vendor == "amd"
    first, second = found.devices
    assert first[:6] == ("GPU-000000027c1f610c", 0, "Instinct MI300X", 64 * GIB, 4 * GIB, 37.0)
    assert first.processes == (ProcessUse(4321, 3 * GIB, None),)
    assert (second.device, second.model) == ("1", "gfx90a") and "shows nothing of it" in second.trouble
    assert Readings.from_json(found.to_json()) == found
    assert Amd(tmp_path / "none", tmp_path / "none").look() == Readings()


def test_amds_devices_have_a_variable_of_their_own(tmp_path: Path) -> None:
    nodes = tmp_path / "kfd" / "topology" / "nodes"
    amd_tree(tmp_path)
    found = find_gpus({AMD: "1,GPU-27c"}, tmp_path / "none", nodes)
    assert (found.devices, found.variable) == (("1", "GPU-27c"), "ROCR_VISIBLE_DEVICES")


def test_uuids_are_read_from_the_kernels_files_unless_these_do_not_say(tmp_path: Path) -> None:
    for bus, uuid in (("0000:02:00.0", "GPU-b"), ("0000:01:00.0", "GPU-a")):
        (tmp_path / "gpus" / bus).mkdir(parents=True)
        text = f"Model: \t\t NVIDIA L4\nIRQ:   \t\t 42\nGPU UUID: \t {uuid}\nVideo BIOS: \t 95.04\n"
        (tmp_path / "gpus" / bus / "information").write_text(text)
    assert listed_by_kernel(tmp_path) == ("GPU-a", "GPU-b")
    assert find_gpus({}, tmp_path, tmp_path / "none").devices == ("GPU-a", "GPU-b"), "without asking the driver"
    (tmp_path / "gpus" / "0000:01:00.0" / "information").write_text("GPU UUID: GPU-????????-????\n")
    assert listed_by_kernel(tmp_path) is None
    (tmp_path / "gpus" / "0000:01:00.0" / "information").write_text("GPU UUID: GPU-a\n")
    (tmp_path / "capabilities" / "gpu0" / "mig" / "gi1").mkdir(parents=True)
    assert listed_by_kernel(tmp_path) is None, "of divided GPUs only the driver knows the parts"


# Which is which.


def test_numbers_name_a_device_only_where_all_are_alike_or_the_order_is_set() -> None:
    alike = Readings("nvidia", (gpu("GPU-0"), gpu("GPU-1")))
    mixed = Readings("nvidia", (gpu("GPU-0"), gpu("GPU-1")._replace(model="T4")))
    assert places_of(["1", "GPU-0", "GPU-", "7"], alike, {}) == [alike.devices[1], alike.devices[0], None, None]
    assert places_of(["1", "GPU-1"], mixed, {}) == [None, mixed.devices[1]]
    assert places_of(["1"], mixed, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == [mixed.devices[1]]


# Who uses what.

ALONE, HALF_A, HALF_B = Held((1,), 1.0), Held((0,), 0.5), Held((0,), 0.5)


def test_what_a_worker_uses_is_the_use_of_its_processes_or_of_the_device_that_it_has_alone() -> None:
    readings = [
        gpu("GPU-0", ProcessUse(10, 6 * GIB, 50.0), ProcessUse(20, 2 * GIB, 0.0), used=9 * GIB, percent=50.0),
        gpu("GPU-1", used=3 * GIB, percent=20.0),
    ]
    found = uses({1: HALF_A, 2: HALF_B, 3: ALONE}, {1: [10, 11], 2: [20]}, readings)
    assert found == {
        1: Use(6 * GIB, 50.0, False),
        2: Use(2 * GIB, 0.0, True),
        3: Use(3 * GIB, 20.0, False),
    }


def test_what_cannot_be_told_is_not_told_of_anybody() -> None:
    strange = [gpu("GPU-0", ProcessUse(999, 30 * GIB, 90.0), used=31 * GIB, percent=90.0)]
    found = uses({1: HALF_A, 2: HALF_B}, {}, strange)
    assert found[1] == found[2] == Use(None, None, False), "pids of another namespace: nobody is charged"
    calm = [strange[0]._replace(percent=1.0)]
    assert uses({1: HALF_A}, {}, calm)[1].idle, "if nobody uses the device, each of them is idle"
    assert uses({1: ALONE}, {}, [None, strange[0]._replace(trouble="lost")])[1] == Use(None, None, None)
    assert uses({1: ALONE}, {}, [None])[1] == Use(None, None, None)
    assert uses({1: HALF_A}, {}, strange, sees_all=True)[1] == Use(0, 0.0, True), "all are seen, and none is its own"


@given(
    st.floats(0.01, 1),
    st.integers(0, 80 * GIB),
    st.lists(st.sampled_from([0.0, 3.0, 50.0, None]), min_size=1, max_size=20),
)
def test_idle_is_whoever_has_used_next_to_nothing_ever_since(
    share: float, memory: int, percents: list[float | None]
) -> None:
    over_time, held, ended = UseOverTime(), {7: Held((0,), share)}, []
    for second, percent in enumerate(percents):
        readings = [gpu("GPU-0", ProcessUse(1, memory, percent), used=memory, percent=percent)]
        found = uses(held, {7: [1]}, readings)
        ended = over_time.note(found, held, readings, (second + 1) * 1_000_000_000)
    calm = 0
    for percent in reversed(percents):
        if percent is None or percent >= 5:
            break
        calm += 1
    assert over_time.idle_ms(7, len(percents) * 1_000_000_000) == 1000 * max(0, calm - 1)
    beyond = share < 1 and is_far_beyond(memory, int(40 * GIB * share))
    assert ended == ([7] if beyond and len(percents) >= LOOKS_BEYOND else [])


def test_a_little_more_than_its_share_ends_nobody() -> None:
    assert not is_far_beyond(int(20 * GIB * FAR_BEYOND), 20 * GIB) and is_far_beyond(25 * GIB, 20 * GIB)
    assert not is_far_beyond(500 << 20, 400 << 20), "of a small share, what CUDA itself takes would be too much"


def test_a_worker_that_took_the_memory_of_others_ended_for_lack_of_memory() -> None:
    found = explain(Exit(signal=9), Phase.RUNNING, overrun=None, oom=False, killed_for="why", lacked_gpu_memory=True)
    assert (found.cause, found.message) == (work.CAUSE_OOM, "why")


# The watch.


def watch_of(gpus: GpuIndices, ended: list[tuple[int, str]], changed: list[list[int]]) -> GpuWatch:
    return GpuWatch(
        gpus,
        {},
        lambda: {1: os.getppid(), 2: os.getpid()},
        lambda key: f"mark.{key}",
        lambda key, why: ended.append((key, why)),
        changed.append,
    )


def test_a_lost_device_is_given_to_nobody_until_it_is_back() -> None:
    gpus, ended, changed = GpuIndices(["GPU-0", "GPU-1"]), [], []  # type: ignore[var-annotated]
    watch = watch_of(gpus, ended, changed)
    assert gpus.take(1, 1.0) == (0,)
    both = Readings("nvidia", (gpu("GPU-0"), gpu("GPU-1")))
    watch.note(both, 1)
    assert changed == []
    watch.note(Readings("nvidia", (Reading("", 0, trouble="the GPU has fallen off the bus"), gpu("GPU-1"))), 2)
    assert changed == [[1]] and gpus.count == 1
    assert "fallen off the bus" in watch.why_lost(1) and "GPU-0" in watch.why_lost(1)
    assert [(one.device, bool(one.trouble)) for one in watch.statuses()] == [("GPU-0", True), ("GPU-1", False)]
    assert gpus.take(2, 1.0) == (1,) and gpus.take(3, 0.5) is None
    watch.note(Readings("nvidia", (gpu("GPU-1"),)), 3)
    assert "no longer shows it" in watch.statuses()[0].trouble
    gpus.give_back(1)
    watch.note(both, 4)
    assert changed[-1] == [] and gpus.count == 2 and gpus.take(3, 1.0) == (0,)


def test_processes_of_children_count_for_their_worker() -> None:
    gpus, ended = GpuIndices(["GPU-0"]), []  # type: ignore[var-annotated]
    watch = watch_of(gpus, ended, [])
    gpus.take(1, 0.25)
    gpus.take(2, 0.25)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        reading = gpu("GPU-0", ProcessUse(child.pid, 30 * GIB, 80.0), used=30 * GIB, percent=80.0)
        for second in range(LOOKS_BEYOND):
            watch.note(Readings("nvidia", (reading,)), second + 1)
        child.communicate(b"\n")
    assert [key for key, _ in ended] == [2], "its parent, this process, is worker 2"
    assert "32.2 GB of the memory of GPU 0 (A100, GPU-0)" in ended[0][1] and "10.7 GB" in ended[0][1]
    told = watch.of_worker(1, 10, is_working=True)
    assert told is not None and told.share == 0.25


# MPS.


def test_mps_bounds_its_clients_where_its_daemon_listens(tmp_path: Path) -> None:
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    assert pipe_folder(environment) is None, "a folder that a daemon has left"
    os.mkfifo(tmp_path / "control")
    assert pipe_folder(environment) == tmp_path
    assert client_variables(tmp_path, 0.5, 40 * GIB) == {
        "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path),
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20480M",
    }
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in client_variables(tmp_path, 0.5, 0)
