"""The loops of compiled kernels, read from the compiler's assembly: which are vectors' and what stands in their way."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from korch_cli.codegen import headers
from korch_cli.core.kernel import Kernel
from korch_cli.toolchain import Compiler

_LABEL = re.compile(r"^(\.?\w[\w.$]*):")
_JUMP = re.compile(r"^\s+(?:j\w+|b[\w.]*|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.L[\w.$]*)\s*$")
_ARITHMETIC = r"(?:add|sub|mul|div|max|min|sqrt|fn?m(?:add|sub)\d*)"
_INTEGER = r"vp(?:and|andn|or|xor|add|sub|cmp\w*)[dq]|vpternlog[dq]"
_COMPUTES = rf"v?(?:{_ARITHMETIC}|cmp\w*|blendm?v?|and|andn|or|xor)p[sd]|{_INTEGER}"
_PACKED = {
    64: re.compile(rf"^\s+(?:{_COMPUTES})\s.*%zmm"),
    32: re.compile(rf"^\s+(?:{_COMPUTES}|vp(?:and|andn|or|xor))\s.*%ymm"),
    16: re.compile(rf"^\s+(?:(?:{_COMPUTES}|p(?:and|andn|or|xor))\s.*%xmm|f\w+\s+v\d+\.[24][sd])"),
}
_ELEMENTWISE = re.compile(
    rf"^\s+(?:v?{_ARITHMETIC}s[sd]|v?u?comis[sd]|v?pinsr[bwdq]|v?pextr[bwdq]|v?insertps|v?extractps"
    r"|f(?:add|sub|mul|div|max|min|sqrt|n?madd|n?msub|cmpe?)\s+[sd]\d+|ins\s+v|call|bl)\s"
)
"""Arithmetic on one element, or elements that are moved into vectors and out of them one by one, or a call."""
_ASSEMBLED = re.compile(
    r"^\s+(?:v\w+\s.*\(%r[sb]p\).*%[xyz]mm|v\w+\s.*%[xyz]mm.*\(%r[sb]p\)|vbroadcasts[sd]\s.*\{%k\d\}"
    r"|v?pinsr[bwdq]\s|v?insertps\s|(?:ld|st)[ru]\s+q\d+, \[(?:sp|x29)|ins\s+v)"
)
"""A vector that goes through the stack, or into which single elements are moved."""


@dataclass(frozen=True, slots=True)
class Loop:
    """An innermost loop.

    Attributes:
        lines: its instructions.
        packed: those that compute with a whole vector register.
        elementwise: those that compute with single elements or move them.
    """

    lines: tuple[str, ...]
    packed: tuple[str, ...]
    elementwise: tuple[str, ...]


def assembly(kernel: Kernel, compiler: Compiler, folder: Path) -> str:
    """Return the assembly of a kernel as it would be shipped."""
    for name, text in headers().items():
        (folder / name).write_text(text, encoding="utf-8")
    source, made = folder / f"{kernel.name}.cpp", folder / f"{kernel.name}.s"
    source.write_text(kernel.source, encoding="utf-8")
    subprocess.run(
        [*compiler.command, *compiler.flags, "-S", "-g0", str(source), "-o", str(made)],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    return made.read_text(encoding="utf-8")


def innermost_loops(text: str, vector_bytes: int) -> list[Loop]:
    """Return the loops that have no loop inside."""
    lines = [line for line in text.splitlines() if line.strip() and not re.match(r"^\s+[.#/]", line)]
    labels = {found.group(1): i for i, line in enumerate(lines) if (found := _LABEL.match(line))}
    spans = []
    for i, line in enumerate(lines):
        found = _JUMP.match(line)
        if found and labels.get(found.group(1), i + 1) <= i:
            spans.append((labels[found.group(1)], i))
    inner = [(a, b) for a, b in spans if not any((c, d) != (a, b) and a <= c and d <= b for c, d in spans)]
    return [_loop(lines[a : b + 1], vector_bytes) for a, b in inner]


def assembled(text: str) -> list[str]:
    """Return the instructions that put vectors together from parts, wherever they stand."""
    return [line.strip() for line in text.splitlines() if _ASSEMBLED.match(line)]


def _loop(lines: list[str], vector_bytes: int) -> Loop:
    packed = tuple(line.strip() for line in lines if _PACKED[vector_bytes].match(line))
    return Loop(tuple(lines), packed, tuple(line.strip() for line in lines if _ELEMENTWISE.match(line)))
