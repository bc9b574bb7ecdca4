"""`python -m windrow_agent.node.gpu_driver`: what the GPUs of this machine are and do.

A process of its own, since a driver may hang or crash with the process that asks it. It writes one JSON document a line
to stdout: one at once, and one for each line that comes in; it ends with its input.

NVIDIA: NVML, by `nvidia-ml-py`; its calls, structures and errors are those of NVIDIA's NVML API Reference
(docs.nvidia.com/deploy/nvml-api). AMD: files of the kernel's amdgpu and amdkfd drivers (docs.kernel.org/gpu/amdgpu:
`mem_info_vram_total`, `mem_info_vram_used`, `gpu_busy_percent`; `/sys/class/kfd/kfd`).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from windrow.common.device_packing import DEVICES_MAX

_TEXT_MAX = 200
_RETRY_S = 10.0
"""While something is wrong with the driver or a device, the driver is opened again after this time."""
_FIRST_WINDOW_US = 2_000_000
_KFD = Path("/sys/class/kfd/kfd")
_DRM = Path("/sys/class/drm")

_Value = TypeVar("_Value")

NO_BINDINGS = (
    "the NVIDIA driver is here, but not the Python package nvidia-ml-py, which asks it: install it beside Windrow "
    "(pip install 'windrow[gpu]')"
)


class ProcessUse(NamedTuple):
    """What one process uses of a device. `pid`: as the driver has it, which may be the number in another namespace.
    `memory_bytes`, `percent`: None if that is not measured.
    """

    pid: int
    memory_bytes: int | None
    percent: float | None


class Reading(NamedTuple):
    """One device at one moment.

    `device`: its value in CUDA_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES; empty if the driver does not say. `number`: its
    place in the driver's own order; of a MIG instance, that of its GPU. `trouble`: why it cannot be used, in words.
    What is not measured is None.
    """

    device: str
    number: int
    model: str = ""
    memory_bytes: int = 0
    memory_used_bytes: int | None = None
    percent: float | None = None
    processes: tuple[ProcessUse, ...] = ()
    trouble: str = ""


class Readings(NamedTuple):
    """All devices at one moment. `vendor`: `nvidia`, `amd`, or empty if there are none. `trouble`: why devices cannot
    be seen or measured, in words.
    """

    vendor: str = ""
    devices: tuple[Reading, ...] = ()
    trouble: str = ""

    def to_json(self) -> str:
        """One line that `from_json` reads."""
        devices = [{**one._asdict(), "processes": [list(use) for use in one.processes]} for one in self.devices]
        return json.dumps({"vendor": self.vendor, "devices": devices, "trouble": self.trouble})

    @classmethod
    def from_json(cls, text: bytes | str) -> Readings:
        """Raises ValueError, KeyError or TypeError if it is no such line."""
        told = json.loads(text)
        devices = tuple(
            Reading(**{**one, "processes": tuple(ProcessUse(*use) for use in one["processes"])})
            for one in told["devices"]
        )
        return cls(told["vendor"], devices, told["trouble"])


class Nvml:
    """The GPUs of NVIDIA, by NVML."""

    def __init__(self) -> None:
        self._open_s = -_RETRY_S
        self._handles: list[tuple[int, Any, str]] | str = ""
        """Of each device: its number, its handle (None if it has none) and what is wrong; or why there are none."""
        self._seen_us: dict[int, int] = {}
        """By place: the moment of the last sample of its processes, in µs since 1970, as the driver counts."""
        self._known: dict[int, Reading] = {}
        """By place: what it is, since the driver was opened."""

    def look(self) -> Readings:
        """What the devices are and do now. Raises nothing of NVML."""
        try:
            import pynvml
        except ImportError:
            return Readings("nvidia", trouble=NO_BINDINGS)
        if self._is_wrong and time.monotonic() - self._open_s >= _RETRY_S:
            self._open(pynvml)
        if isinstance(self._handles, str):
            return Readings("nvidia", tuple(self._lost(self._handles)), self._handles)
        return Readings("nvidia", tuple(self._read(pynvml, *one) for one in enumerate(self._handles)))

    @property
    def _is_wrong(self) -> bool:
        return isinstance(self._handles, str) or any(trouble for _, _, trouble in self._handles)

    def _lost(self, why: str) -> Iterator[Reading]:
        """Devices that were there before the driver went."""
        for known in self._known.values():
            yield Reading(known.device, known.number, known.model, known.memory_bytes, trouble=why)

    def _open(self, nvml: Any) -> None:
        """Begins anew: a driver that has lost a device knows it again after that has been reset."""
        self._open_s = time.monotonic()
        try:
            nvml.nvmlShutdown()
        except nvml.NVMLError:
            pass
        try:
            nvml.nvmlInit()
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError as error:
            self._handles = f"the NVIDIA driver does not answer: {_words(nvml, error)}"
            return
        found: list[tuple[int, Any, str]] = []
        for index in range(min(count, DEVICES_MAX)):
            try:
                found += self._parts(nvml, index, nvml.nvmlDeviceGetHandleByIndex(index))
            except nvml.NVMLError as error:
                found.append((index, None, _words(nvml, error)))
        self._handles, self._known = found[:DEVICES_MAX], {}

    def _parts(self, nvml: Any, index: int, handle: Any) -> list[tuple[int, Any, str]]:
        """A GPU, or where it is divided in hardware, its MIG instances: then it cannot be used as a whole."""
        mode = _try(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle))
        if mode is None or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
            return [(index, handle, "")]
        most = _try(nvml, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0
        parts = [_try(nvml, partial(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, at)) for at in range(most)]
        return [(index, part, "") for part in parts if part is not None]

    def _read(self, nvml: Any, place: int, device: tuple[int, Any, str]) -> Reading:
        index, handle, trouble = device
        known = self._known.get(place)
        if handle is None:
            return Reading("", index, trouble=trouble)
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            if known is None:
                known = self._known[place] = Reading(
                    _text(nvml.nvmlDeviceGetUUID(handle)),
                    index,
                    _text(_try(nvml, lambda: nvml.nvmlDeviceGetName(handle)) or ""),
                    int(memory.total),
                )
        except nvml.NVMLError as error:
            assert not isinstance(self._handles, str)
            self._handles[place] = index, handle, _words(nvml, error)
            return (known or Reading("", index))._replace(trouble=_words(nvml, error))
        if trouble:
            assert not isinstance(self._handles, str)
            self._handles[place] = index, handle, ""
        rates = _try(nvml, lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        return known._replace(
            memory_bytes=int(memory.total),
            memory_used_bytes=int(memory.used),
            percent=None if rates is None else float(rates.gpu),
            processes=self._processes(nvml, place, handle),
        )

    def _processes(self, nvml: Any, place: int, handle: Any) -> tuple[ProcessUse, ...]:
        running = _try(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or []
        memory = {one.pid: None if one.usedGpuMemory is None else int(one.usedGpuMemory) for one in running}
        percents = self._percents(nvml, place, handle)
        return tuple(
            ProcessUse(pid, memory.get(pid), None if percents is None else percents.get(pid, 0.0))
            for pid in sorted(memory.keys() | (percents or {}).keys())
        )

    def _percents(self, nvml: Any, place: int, handle: Any) -> dict[int, float] | None:
        """By process: the mean of what the driver has sampled since the last look; None if it does not sample."""
        since = self._seen_us.get(place, time.time_ns() // 1000 - _FIRST_WINDOW_US)
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(handle, since)
        except nvml.NVMLError as error:
            # No sample since then: nobody has computed.
            return {} if error.value == nvml.NVML_ERROR_NOT_FOUND else None
        found: dict[int, list[float]] = {}
        for sample in samples:
            if sample.timeStamp > since:  # the driver fills up with older ones
                found.setdefault(sample.pid, []).append(float(sample.smUtil))
                self._seen_us[place] = max(self._seen_us.get(place, 0), sample.timeStamp)
        return {pid: sum(values) / len(values) for pid, values in found.items()}


def _try(nvml: Any, ask: Callable[[], _Value]) -> _Value | None:
    """The answer of the driver; None if this device, or this driver, has none."""
    try:
        return ask()
    except nvml.NVMLError:
        return None


def _words(nvml: Any, error: Any) -> str:
    """What is wrong, and what to do about it."""
    advice = {
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the kernel module of the driver is not loaded (see `nvidia-smi`)",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the driver's library and its kernel module have different versions, "
        "as after an update: restart the machine, or load the module again",
        nvml.NVML_ERROR_GPU_IS_LOST: "the GPU has fallen off the bus, or cannot be reached: reset it (nvidia-smi "
        "-r), or restart the machine; the kernel's log says more (dmesg | grep -i xid)",
        nvml.NVML_ERROR_RESET_REQUIRED: "the GPU must be reset before it can be used (nvidia-smi -r)",
        nvml.NVML_ERROR_NO_PERMISSION: "the agent's user may not ask the driver: let it open /dev/nvidiactl",
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not found: install the driver's libraries; in a "
        "container, let it have the capability `utility` (NVIDIA_DRIVER_CAPABILITIES)",
    }
    return advice.get(error.value) or f"NVML says: {_text(str(error))}"


def _text(told: str | bytes) -> str:
    text = told.decode("utf-8", "replace") if isinstance(told, bytes) else told
    return "".join(one for one in text if one.isprintable())[:_TEXT_MAX]


class Amd:
    """The GPUs of AMD, by files of the kernel."""

    def __init__(self, kfd: Path = _KFD, drm: Path = _DRM) -> None:
        self._kfd, self._drm = kfd, drm

    def look(self) -> Readings:
        """What the devices are and do now."""
        nodes = (self._kfd / "topology" / "nodes").glob("*")
        places = sorted((int(node.name), node) for node in nodes if node.name.isdigit())
        devices: list[Reading] = []
        for _, node in places:
            properties = _properties(node / "properties")
            # A node without SIMD units is a processor.
            if properties.get("simd_count", 0) > 0 and len(devices) < DEVICES_MAX:
                devices.append(self._read(node, properties, len(devices)))
        return Readings("amd" if devices else "", tuple(devices))

    def _read(self, node: Path, properties: Mapping[str, int], index: int) -> Reading:
        # ROCm names a device by its number, or as GPU- with the unique id of those that have one, in hexadecimal.
        unique = properties.get("unique_id", 0)
        device = f"GPU-{unique:016x}" if unique else str(index)
        card = self._drm / f"renderD{properties.get('drm_render_minor', 0)}" / "device"
        total, used, busy = (
            _number(card / name) for name in ("mem_info_vram_total", "mem_info_vram_used", "gpu_busy_percent")
        )
        trouble = "" if total is not None else f"the kernel shows nothing of it in {card}"
        return Reading(
            device,
            index,
            _text(_line(card / "product_name") or _line(node / "name") or "AMD GPU"),
            total or 0,
            used,
            None if busy is None else float(busy),
            tuple(self._processes(_number(node / "gpu_id"))),
            trouble,
        )

    def _processes(self, gpu_id: int | None) -> Iterator[ProcessUse]:
        for folder in (self._kfd / "proc").glob("*"):
            memory = _number(folder / f"vram_{gpu_id}") if folder.name.isdigit() else None
            if memory:
                yield ProcessUse(int(folder.name), memory, None)


def _line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _line(path)
    return int(text) if text.isdigit() else None


def _properties(path: Path) -> dict[str, int]:
    """Lines of a name and a number each."""
    pairs = (line.split() for line in _line(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def looker(has_nvidia: bool | None = None) -> Callable[[], Readings]:
    """What asks the driver that this machine has. `has_nvidia`: None: look for it."""
    from windrow_agent.node.gpus import nvidia_is_here

    if nvidia_is_here() if has_nvidia is None else has_nvidia:
        return Nvml().look
    return Amd().look


def main(lines: Sequence[str] | None = None) -> int:
    """Answers until the input ends."""
    look = looker()
    print(look().to_json(), flush=True)
    for _ in sys.stdin if lines is None else lines:
        print(look().to_json(), flush=True)
    return 0


if __name__ == "__main__":
    # The agent may end without a word: its end of our input is then closed.
    try:
        code = main()
    except (BrokenPipeError, KeyboardInterrupt):
        code = 0
    os._exit(code)
