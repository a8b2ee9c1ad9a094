"""Kernels in a program of their own: for another processor, run by an emulator, or with sanitizers."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from korch_cli.core.types import Array
from korch_cli.toolchain import Compiler

_SOURCE = Path(__file__).with_name("run_kernel.cpp")
_BLOCK = 64
_SECONDS = 120


@dataclass(frozen=True, slots=True)
class EmulatedKernels:
    """A program that holds kernels, and what runs it.

    Attributes:
        program: made by `link_program`.
        emulator: a command; "" where this processor runs the program.
    """

    program: Path
    emulator: str

    def run(
        self, name: str, inputs: Sequence[Array], outputs: Sequence[Array], parts: Sequence[tuple[int, int]]
    ) -> None:
        """Run parts of the units of a kernel one after the other.

        Args:
            name: of the kernel.
            inputs: its operands.
            outputs: bytes of its results with a guard on both sides; overwritten.
            parts: the first unit of each, and the one after its last.

        Raises:
            CalledProcessError: the kernel crashes, or does what a sanitizer forbids; a note says what.
        """
        tensors = [*inputs, *outputs]
        numbers = [len(inputs), len(outputs), *(a.nbytes for a in tensors), len(parts), *(n for p in parts for n in p)]
        content = bytearray(np.array(numbers, "<i8").tobytes())
        places = []
        for tensor in tensors:
            content += bytes(-len(content) % _BLOCK)
            places.append(len(content))
            content += tensor.tobytes()
        file = self.program.with_name(f"{name}.data")
        file.write_bytes(content)
        command = [*shlex.split(self.emulator), str(self.program), name, str(file)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS, env=_environment())
        except subprocess.CalledProcessError as error:
            error.add_note(error.stderr)
            raise
        changed = file.read_bytes()
        for tensor, place in zip(outputs, places[len(inputs) :], strict=True):
            tensor[...] = np.frombuffer(changed, np.uint8, tensor.nbytes, place)


def _environment() -> dict[str, str]:
    # What the program allocates, it keeps to its end.
    return {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}


def link_program(
    compiler: Compiler, objects: Sequence[Path], names: Sequence[str], program: Path, *, guard: int
) -> None:
    """Make a program of kernels. Raises CalledProcessError."""
    functions = "\n".join(
        f'extern "C" void {name}(const void* const*, void* const*, int64_t, int64_t);' for name in names
    )
    entries = "\n".join(f'    {{"{name}", {name}}},' for name in names)
    header = f"""#include <stdint.h>
{functions}
constexpr int kGuard = {guard};
struct Entry {{
  const char* name;
  void (*run)(const void* const*, void* const*, int64_t, int64_t);
}};
static const Entry entries[] = {{
{entries}
}};
"""
    program.with_name("kernels.h").write_text(header, encoding="utf-8")
    # Static, so that an emulator needs no libraries of the other processor; sanitizers are libraries that are shared.
    linkage = [] if any(flag.startswith("-fsanitize") for flag in compiler.flags) else ["-static"]
    arguments = [*compiler.command, *compiler.flags, f"-I{program.parent}", str(_SOURCE), *map(str, objects)]
    subprocess.run([*arguments, *linkage, "-lm", "-o", str(program)], check=True, capture_output=True, text=True)
