"""NVIDIA's driver and its GPUs, asked directly: neither CuPy nor CUDA is needed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from korch_cli.core.errors import MissingError

_LIBRARY = "libcuda.so.1"
_NAME_BYTES = 128
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
"""CUdevice_attribute."""


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU.

    Attributes:
        name: of the product.
        capability: compute capability times ten.
    """

    name: str
    capability: int


@dataclass(frozen=True, slots=True)
class CudaDriver:
    """A driver that works.

    Attributes:
        version: of CUDA that it supports, e.g. (13, 0).
        devices: one at least.
    """

    version: tuple[int, int]
    devices: tuple[Device, ...]


def find_driver() -> CudaDriver:
    """Return the driver and its GPUs.

    Raises:
        MissingError: there is no driver, it does not start, or it has no GPU.
    """
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise MissingError("there is no NVIDIA driver here", where=_LIBRARY) from error
    _check(library.cuInit(0), "the NVIDIA driver does not start")
    version, count = ctypes.c_int(), ctypes.c_int()
    _check(library.cuDriverGetVersion(ctypes.byref(version)), "the NVIDIA driver tells no version")
    _check(library.cuDeviceGetCount(ctypes.byref(count)), "the NVIDIA driver counts no GPUs")
    if not count.value:
        raise MissingError("the NVIDIA driver has no GPU", hint="CUDA_VISIBLE_DEVICES may hide it")
    devices = tuple(_device(library, number) for number in range(count.value))
    return CudaDriver((version.value // 1000, version.value % 1000 // 10), devices)


def _device(library: ctypes.CDLL, number: int) -> Device:
    device, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    name = ctypes.create_string_buffer(_NAME_BYTES)
    problem = "the NVIDIA driver does not describe its GPU"
    _check(library.cuDeviceGet(ctypes.byref(device), number), problem)
    _check(library.cuDeviceGetName(name, _NAME_BYTES, device), problem)
    _check(library.cuDeviceGetAttribute(ctypes.byref(major), _CAPABILITY_MAJOR, device), problem)
    _check(library.cuDeviceGetAttribute(ctypes.byref(minor), _CAPABILITY_MINOR, device), problem)
    return Device(name.value.decode(errors="replace"), 10 * major.value + minor.value)


def _check(result: int, problem: str) -> None:
    if result:
        raise MissingError(f"{problem} (CUDA error {result})", where=_LIBRARY)
