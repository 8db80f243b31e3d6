"""The device to be measured: which one it is, how much memory is free, and how time is taken on it."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright import __version__
from meshwright.bench.records import Device, Reading
from meshwright.catalog.load import exact
from meshwright.errors import InputError, MissingExtraError
from meshwright.messages import N_, Text

LARGEST_FLUSH = 256 * 2**20  # bytes: no cache is larger, and writing more would only take time
UNKNOWN_CACHE = 32 * 2**20
LEAD_CYCLES = 100_000  # of the device clock, per call: more than a host needs to put one kernel into the queue


def torch_or_error(what: str) -> Any:
    """The module torch, or the error that names the extra that brings it."""
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError(
            Text(N_("{what} needs torch, which is not installed"), what=what),
            fix=Text(N_("install the extra: {command}"), command="pip install 'meshwright[torch]'"),
        ) from error
    return torch


@dataclass(frozen=True, slots=True)
class Machine:
    """A torch device with its clock: `elapsed(calls, batch, repeats)` gives seconds per call of every repeat."""

    torch: Any
    device: Any  # torch.device
    backend: str
    cache_bytes: float

    @property
    def events(self) -> bool:
        """Whether the device has a clock of its own; the clock of the host waits for the device instead."""
        return self.device.type == "cuda"

    def synchronize(self) -> None:
        """Wait until the device has done everything it was given."""
        if self.device.type == "cpu":
            return
        if self.device.type == "cuda":
            self.torch.cuda.synchronize(self.device)
        else:
            self.torch.accelerator.synchronize(self.device)

    def free_bytes(self) -> float:
        """Memory that can be taken now."""
        if self.device.type == "cuda":
            free, _ = self.torch.cuda.mem_get_info(self.device)
            held = self.torch.cuda.memory_reserved(self.device) - self.torch.cuda.memory_allocated(self.device)
            return float(free + held)
        return host_free_bytes()

    @property
    def out_of_memory(self) -> type[Exception]:
        """What torch raises when the device has no memory left."""
        found: type[Exception] = getattr(self.torch, "OutOfMemoryError", self.torch.cuda.OutOfMemoryError)
        return found

    def release(self) -> None:
        """Give cached blocks back, so that the next shape finds the memory in one piece."""
        if self.device.type == "cuda":
            self.torch.cuda.empty_cache()

    def elapsed(
        self,
        calls: Sequence[Callable[[], object]],
        batch: int,
        repeats: int,
        *,
        flush: bool = True,
        most: float = math.inf,
        least: int = 1,
    ) -> list[float]:
        """Seconds per call of each of `repeats` repeats of `batch` calls, which take turns over `calls`.

        `flush`: write over the caches between repeats. After `most` seconds no repeat beyond `least` is begun, where
        the host can tell.
        """
        turns = [[calls[(i * batch + j) % len(calls)] for j in range(batch)] for i in range(repeats)]
        between = self._flusher() if flush or self.events else lambda: None
        return self._by_events(turns, between) if self.events else self._by_host(turns, between, most, least)

    def _flusher(self) -> Callable[[], object]:
        size = int(min(2 * self.cache_bytes, LARGEST_FLUSH, 0.05 * self.free_bytes()))
        scratch = self.torch.empty(max(size, 1), dtype=self.torch.uint8, device=self.device)
        return scratch.zero_

    def _by_events(
        self, repeats: Sequence[Sequence[Callable[[], object]]], between: Callable[[], object]
    ) -> list[float]:
        """Everything is queued first and read afterwards: the device never waits for the host between two kernels."""
        cuda = self.torch.cuda
        pairs = [(cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)) for _ in repeats]
        for (start, end), turns in zip(pairs, repeats, strict=True):
            between()
            if len(turns) > 1:  # short kernels: hold the queue until all of them stand in it
                cuda._sleep(LEAD_CYCLES * len(turns))
            start.record()
            for call in turns:
                call()
            end.record()
        cuda.synchronize(self.device)
        return [start.elapsed_time(end) * 1e-3 / len(turns) for (start, end), turns in zip(pairs, repeats, strict=True)]

    def _by_host(
        self,
        repeats: Sequence[Sequence[Callable[[], object]]],
        between: Callable[[], object],
        most: float,
        least: int,
    ) -> list[float]:
        found: list[float] = []
        end = time.perf_counter() + most
        for turns in repeats:
            if len(found) >= least and time.perf_counter() > end:
                break
            between()
            self.synchronize()
            start = time.perf_counter()
            for call in turns:
                call()
            self.synchronize()
            found.append((time.perf_counter() - start) / len(turns))
        return found


# ---------------------------------------------------------------------------------------------- which device


def choose(torch: Any, name: str | None) -> Machine:
    """The device called `name` (cuda, cuda:1, cpu, …), or the accelerator that torch finds, or the CPU."""
    device = _device(torch, name)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        device = torch.device("cuda", index)
        torch.cuda.set_device(device)
        cache = float(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or UNKNOWN_CACHE)
        return Machine(torch, device, "rocm" if torch.version.hip else "cuda", cache)
    return Machine(torch, device, device.type, cpu_cache_bytes() if device.type == "cpu" else UNKNOWN_CACHE)


def _device(torch: Any, name: str | None) -> Any:
    here, count = _accelerator(torch)
    if name is None:
        return here
    legal = [*(f"{here.type}:{i}" for i in range(count)), "cpu"]
    if name not in (*legal, here.type):
        raise InputError(
            Text(N_("there is no device '{name}' here"), name=name[:40]),
            where="--device",
            fix=Text(N_("choose one of {names}"), names=", ".join(legal)),
        )
    return torch.device(name)


def _accelerator(torch: Any) -> tuple[Any, int]:
    """The accelerator of this host and how many there are; the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda"), torch.cuda.device_count()
    if hasattr(torch, "accelerator") and torch.accelerator.is_available():
        return torch.accelerator.current_accelerator(), torch.accelerator.device_count()
    return torch.device("cpu"), 0


def describe(machine: Machine, accelerator: str | None = None) -> Device:
    """The device as a record; `accelerator` is the catalogue id where the name does not tell it."""
    torch, device = machine.torch, machine.device
    free = machine.free_bytes()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return Device(
            name=properties.name, backend=machine.backend, count=torch.cuda.device_count(),
            memory_bytes=float(properties.total_memory), free_bytes=free,
            compute_units=properties.multi_processor_count, cache_bytes=machine.cache_bytes,
            capability=f"{properties.major}.{properties.minor}",
            accelerator=accelerator or exact("accelerators", properties.name),
        )  # fmt: skip
    cpu = device.type == "cpu"
    return Device(
        name=_processor() if cpu else f"{device.type} {platform.machine()}", backend=machine.backend, count=1,
        memory_bytes=host_memory_bytes(), free_bytes=free, compute_units=torch.get_num_threads() if cpu else None,
        cache_bytes=machine.cache_bytes, capability=torch.backends.cpu.get_cpu_capability() if cpu else "",
        accelerator=accelerator,
    )  # fmt: skip


def _processor() -> str:
    """Name of the CPU."""
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine() or "cpu"


def software(machine: Machine) -> Mapping[str, str]:
    """Versions of everything that decides how fast a kernel is."""
    torch = machine.torch
    found = {
        "meshwright": __version__, "python": platform.python_version(), "torch": str(torch.__version__),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }  # fmt: skip
    if machine.device.type == "cuda":
        found["cuda"] = str(torch.version.hip or torch.version.cuda or "")
        found["cudnn"] = str(torch.backends.cudnn.version() or "")
        if torch.distributed.is_available() and torch.distributed.is_nccl_available():
            found["nccl"] = ".".join(str(part) for part in torch.cuda.nccl.version())
        if machine.backend == "cuda":
            found["driver"] = _driver(machine, ("driver_version",)).get("driver_version", "")
    return {name: version for name, version in found.items() if version}


# ---------------------------------------------------------------------------------------------- readings


_QUERY = {
    "clocks.sm": ("clock_hz", 1e6), "clocks.max.sm": ("clock_limit_hz", 1e6), "power.draw": ("watts", 1.0),
    "power.limit": ("watts_limit", 1.0), "temperature.gpu": ("celsius", 1.0),
}  # fmt: skip


def reading(machine: Machine, moment: str) -> Reading:
    """Clock, power and temperature now, as far as the driver's own tool tells."""
    values: dict[str, float] = {}
    if machine.backend == "cuda":
        for field, text in _driver(machine, tuple(_QUERY)).items():
            name, factor = _QUERY[field]
            try:
                values[name] = float(text) * factor
            except ValueError:  # [N/A], [Not Supported]
                continue
    return Reading(moment=moment, **values)


def _driver(machine: Machine, fields: Sequence[str]) -> dict[str, str]:
    """What the driver's tool says of this device; empty where there is no such tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    uuid = str(getattr(machine.torch.cuda.get_device_properties(machine.device), "uuid", ""))
    which = f"GPU-{uuid}" if uuid and not uuid.startswith("GPU-") else uuid or str(machine.device.index)
    command = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", "-i", which]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    cells = [cell.strip() for cell in done.stdout.splitlines()[0].split(",")] if done.stdout.strip() else []
    return dict(zip(fields, cells, strict=False))


# ---------------------------------------------------------------------------------------------- memory of the host


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def host_memory_bytes() -> float:
    """Memory of the host, or what a container may use of it."""
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) if hasattr(os, "sysconf") else 4.0 * 2**30
    return min([total, *_numbers("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")])


def host_free_bytes() -> float:
    """Memory of the host that can be taken now: what the system calls available, within the limit of a container."""
    found = [float(line.split()[1]) * 1024 for line in _lines("/proc/meminfo") if line.startswith("MemAvailable")]
    for folder, limit, used in (
        ("/sys/fs/cgroup", "memory.max", "memory.current"),
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        for most, now in zip(_numbers(f"{folder}/{limit}"), _numbers(f"{folder}/{used}"), strict=False):
            found.append(max(most - now, 0.0))
    return min(found) if found else host_memory_bytes() / 4


def _numbers(*paths: str) -> Iterable[float]:
    """The numbers that these files hold alone; "max" means no limit."""
    texts = ("".join(_lines(path)).strip() for path in paths)
    return [float(text) for text in texts if text.isdecimal()]


def cpu_cache_bytes() -> float:
    """Size of the largest cache of a CPU."""
    sizes = [_size("".join(_lines(str(path)))) for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("*/size")]
    return max([size for size in sizes if size], default=float(UNKNOWN_CACHE))


def _size(text: str) -> float:
    units = {"K": 2.0**10, "M": 2.0**20}
    digits, unit = text.strip()[:-1], text.strip()[-1:]
    return float(digits) * units[unit] if digits.isdecimal() and unit in units else 0.0


def resident_bytes() -> float | None:
    """Memory of this process that is resident now."""
    return _status("VmRSS")


def trim() -> None:
    """Give memory that was freed back to the system, where the C library can, so that taking it again is seen."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def resident_peak_bytes() -> float | None:
    """Highest resident memory of this process since `reset_resident_peak`."""
    return _status("VmHWM")


def reset_resident_peak() -> bool:
    """Start counting the peak anew; False where the system cannot."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(name: str) -> float | None:
    found = [line.split()[1] for line in _lines("/proc/self/status") if line.startswith(f"{name}:")]
    return float(found[0]) * 1024 if found and sys.platform.startswith("linux") else None
