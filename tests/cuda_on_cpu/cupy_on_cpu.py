"""The part of CuPy that measuring uses, on a machine without a GPU: kernels run on the CPU from their text."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_MICROSECONDS = 5.0
"""What one launch takes on this device."""
_CACHE, _MEMORY = 1 << 16, 1 << 30


@dataclass
class Clock:
    """The device: time passes with launches, which wait while a stream is captured."""

    now_us: float = 0.0
    captured: list[Callable[[], None]] | None = None
    launches: int = 0
    device: int = 0
    used: set[int] = field(default_factory=set)

    def launch(self, work: Callable[[], None]) -> None:
        if self.captured is not None:
            self.captured.append(work)
            return
        work()
        self.used.add(self.device)
        self.launches += 1
        self.now_us += _MICROSECONDS


@dataclass
class Device:
    """One of several GPUs that are all alike; the current one is the clock's."""

    clock: Clock
    id: int
    compute_capability: str = "90"
    attributes: dict[str, int] = field(default_factory=lambda: {"L2CacheSize": _CACHE})
    before: int = 0

    def __enter__(self) -> Device:
        self.before, self.clock.device = self.clock.device, self.id
        return self

    def __exit__(self, *_: object) -> None:
        self.clock.device = self.before


class Memory(np.ndarray[Any, np.dtype[np.uint8]]):
    """Device memory that keeps the methods of CuPy's arrays which are used."""

    @property
    def data(self) -> Any:
        return types.SimpleNamespace(memset_async=lambda value, size: self.fill(value))

    def get(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        return np.array(self)


@dataclass
class Function:
    """A `RawKernel`."""

    clock: Clock
    run: Any
    max_dynamic_shared_size_bytes: int = 48 << 10

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Memory], *, shared_mem: int = 0
    ) -> None:
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        pointers = [ctypes.c_void_p(memory.ctypes.data) for memory in arguments]
        parameters = (ctypes.c_void_p * len(pointers))(*[ctypes.addressof(pointer) for pointer in pointers])
        self.clock.launch(lambda: self.run(*map(int, (*grid, *block, shared_mem)), (parameters, pointers)[0]))


@dataclass
class Stream:
    """A stream."""

    clock: Clock
    non_blocking: bool = False

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def synchronize(self) -> None:
        assert self.clock.captured is None, "nothing may wait while a stream is captured"

    def begin_capture(self) -> None:
        self.clock.captured = []

    def end_capture(self) -> Any:
        works, self.clock.captured = self.clock.captured, None
        assert works

        def launch(stream: Stream) -> None:
            for work in works:
                self.clock.launch(work)

        return types.SimpleNamespace(launch=launch)


@dataclass
class Event:
    """An event."""

    clock: Clock
    at_us: float = field(default=0.0)

    def record(self, stream: Stream) -> None:
        self.at_us = self.clock.now_us

    def synchronize(self) -> None:
        assert self.clock.captured is None


def cupy_on_cpu(library: Path, clock: Clock) -> types.ModuleType:
    """Return a module that stands for `cupy`; `library` is what `execution.build` makes of the kernels."""
    loaded = ctypes.CDLL(str(library))

    def raw_module(*, path: str) -> Any:
        assert Path(path).exists()
        return types.SimpleNamespace(
            get_function=lambda name: Function(clock, getattr(loaded, f"cuda_on_cpu_launch_{name}"))
        )

    def empty(size: int, dtype: Any) -> Memory:
        # Aligned as device memory is.
        whole = np.zeros(size + 255, dtype)
        start = -whole.ctypes.data % 256
        return whole[start : start + size].view(Memory)

    def asarray(array: np.ndarray[Any, np.dtype[np.uint8]]) -> Memory:
        made = empty(array.size, np.uint8)
        made[:] = array
        return made

    module = types.ModuleType("cupy")
    module.__dict__.update(
        __version__="14.2.0",
        RawModule=raw_module,
        asarray=asarray,
        empty=empty,
        uint8=np.uint8,
        cuda=types.SimpleNamespace(
            Stream=lambda *, non_blocking: Stream(clock, non_blocking),
            Event=lambda: Event(clock),
            get_elapsed_time=lambda begin, end: (end.at_us - begin.at_us) / 1e3,
            Device=lambda number=None: Device(clock, clock.device if number is None else number),
            runtime=types.SimpleNamespace(
                memGetInfo=lambda: (_MEMORY, _MEMORY),
                getDeviceProperties=lambda device: {"name": b"NVIDIA H200"},
                driverGetVersion=lambda: 13000,
                getDeviceCount=lambda: 1,
                deviceSynchronize=lambda: None,
            ),
        ),
    )
    return module
