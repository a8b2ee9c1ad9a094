"""The source of a kernel library: a table of operators and the function that ONNX Runtime calls to register them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from korch_cli.core.artifact import LibraryEntry
from korch_cli.core.processor import NATIVE, Feature
from korch_cli.core.types import TensorType

_HEADER = "korch_ort_cpu.h"
_HEADERS = ("korch_ort.h", _HEADER, "korch_processor.h")
_CHUNK_BYTES = 64 << 10
_CHUNK_FLOPS = 256 << 10
"""Work that is worth handing to another thread: about ten microseconds."""


def registration_unit(
    domain: str,
    entries: Sequence[LibraryEntry],
    comments: Mapping[str, str],
    *,
    processor: str = NATIVE,
    features: Sequence[Feature] = (),
) -> str:
    """Return the C++ unit that registers kernels which other units define.

    It registers nothing on a processor that lacks one of the features. To find that out, the unit itself has to be
    compiled for any processor.

    Args:
        domain: of the operators.
        entries: the kernels; each becomes the operator of its name.
        comments: for some kernel names, what to say above their entries.
        processor: what the kernels are compiled for.
        features: what that may need.
    """
    blocks = [f'#include "{_HEADER}"', _needs_text(processor, features)]
    blocks += [_entry_text(entry, comments.get(entry.kernel.name, "")) for entry in entries]
    check = f"  KORCH_TRY(korch::require(base, needs, {len(features)}, processor));\n"
    blocks.append(registration("korch", domain, [entry.kernel.name for entry in entries], check))
    return "\n\n".join(blocks) + "\n"


@cache
def ort_headers() -> dict[str, str]:
    """Return the files that the unit includes, by name."""
    return runtime_headers(*_HEADERS)


def _needs_text(processor: str, features: Sequence[Feature]) -> str:
    rows = [f'    {{"{f.name}", {f.word:#x}, {f.part}, {f.register}, {f.bit}}},' for f in features]
    return "\n".join(
        [
            f'static const char processor[] = "{processor}";',
            "static const korch::Feature needs[] = {",
            *(rows or ["    {nullptr, 0, 0, 0, 0},"]),
            "};",
        ]
    )


def runtime_headers(*names: str) -> dict[str, str]:
    """Return files of the runtime, by name."""
    folder = resources.files("korch_cli.emit") / "runtime"
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def registration(namespace: str, domain: str, names: Sequence[str], check: str = "") -> str:
    """Return the function that ONNX Runtime calls, for kernels `kernel_NAME` of a type in `namespace`.

    It runs the statement `check` first, which may return a status.
    """
    table = ", ".join(f"&kernel_{name}" for name in names)
    return (
        f"static const {namespace}::Kernel* const kernels[] = {{{table}}};\n\n"
        'extern "C" __attribute__((visibility("default"))) korch::Status* RegisterCustomOps(\n'
        "    korch::SessionOptions* options, const korch::ApiBase* base) {\n"
        f"{check}"
        f'  return {namespace}::register_kernels(options, base, "{domain}", kernels, {len(names)});\n'
        "}"
    )


def signature_lines(
    name: str,
    comment: str,
    inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
    in_place: Sequence[tuple[int, int]] = (),
) -> tuple[list[str], str]:
    """Return the lines that describe the tensors of an operator under a comment, and its signature made of them."""
    lines = [f"// {line}" for line in textwrap.wrap(_printable(comment), 110)]
    for kind, types in (("input", inputs), ("output", outputs)):
        for i, typed in enumerate(types):
            lines.append(f"static const int64_t {kind}{i}_{name}[] = {{{', '.join(map(str, typed.shape)) or '0'}}};")
        tensors = ", ".join(_tensor_text(f"{kind}{i}_{name}", typed) for i, typed in enumerate(types))
        lines.append(f"static const korch::Tensor {kind}s_{name}[] = {{{tensors or '{0, 0, nullptr}'}}};")
    lines += _in_place_lines(name, in_place)
    reuse = f"in_place_{name}" if in_place else "nullptr"
    return lines, f'{{"{name}", inputs_{name}, {len(inputs)}, outputs_{name}, {len(outputs)}, {reuse}}}'


def _in_place_lines(name: str, pairs: Sequence[tuple[int, int]]) -> list[str]:
    if not pairs:
        return []
    given, made = (", ".join(str(pair[side]) for pair in pairs) for side in (0, 1))
    return [
        f"static int reused_{name}[] = {{{given}}}, reusing_{name}[] = {{{made}}};",
        f"static size_t in_place_{name}(int** inputs, int** outputs) {{",
        f"  *inputs = reused_{name};",
        f"  *outputs = reusing_{name};",
        f"  return {len(pairs)};",
        "}",
    ]


def _entry_text(entry: LibraryEntry, comment: str) -> str:
    kernel = entry.kernel
    lines, signature = signature_lines(kernel.name, comment, entry.inputs, entry.outputs, kernel.in_place)
    lines.append(f'extern "C" void {kernel.name}(const void* const*, void* const*, int64_t, int64_t);')
    lines.append(
        f"static const korch::Kernel kernel_{kernel.name} = {{{signature}, {kernel.name}, "
        f"{kernel.units}, {_grain(entry)}}};"
    )
    return "\n".join(lines)


def _tensor_text(shape: str, typed: TensorType) -> str:
    return f"{{{typed.dtype.onnx}, {typed.rank}, {shape}}}"


def _grain(entry: LibraryEntry) -> int:
    """Return the units that make a chunk worth a thread."""
    kernel = entry.kernel
    by_bytes = -(-_CHUNK_BYTES // max(1, kernel.unit_bytes))
    by_flops = -(-_CHUNK_FLOPS // max(1, kernel.unit_flops))
    return max(1, min(by_bytes, by_flops))


def _printable(comment: str) -> str:
    """The comment without what would end it or continue it: one line of printable characters."""
    return "".join(c if c.isprintable() and c not in "\\?" else "_" for c in comment)
