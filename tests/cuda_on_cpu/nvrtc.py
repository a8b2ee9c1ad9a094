"""NVIDIA's compiler as a library, where it is installed: it needs neither a driver nor a GPU."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from korch_cli.codegen import cuda_headers

_PLACES = ("nvidia/cu13/lib/libnvrtc.so.*", "nvidia/cuda_nvrtc/lib/libnvrtc.so.*")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What NVRTC says of one source: whether it compiles, its log, and the most that a function has of each."""

    succeeded: bool
    log: str
    registers: int
    spilled_bytes: int


@cache
def library() -> ctypes.CDLL | None:
    """Return NVRTC, or None where it is not installed."""
    for folder in map(Path, sys.path):
        for place in _PLACES:
            for path in sorted(folder.glob(place)):
                if ".alt." not in path.name:
                    return ctypes.CDLL(str(path))
    return None


def compile_source(nvrtc: ctypes.CDLL, source: str, architecture: str) -> Compiled:
    """Compile a source for an architecture such as sm_80."""
    program = ctypes.c_void_p()
    headers = cuda_headers()
    texts = _strings(list(headers.values()))
    names = _strings(list(headers))
    options = _strings([f"-arch={architecture}", "-std=c++17", "--ptxas-options=-v"])
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", len(headers), texts, names)
    failed = nvrtc.nvrtcCompileProgram(program, len(options), options)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, buffer)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    log = buffer.value.decode()
    return Compiled(not failed, log, _most(r"Used (\d+) registers", log), _most(r"(\d+) bytes spill stores", log))


def _strings(texts: list[str]) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def _most(pattern: str, log: str) -> int:
    return max(map(int, re.findall(pattern, log)), default=0)
