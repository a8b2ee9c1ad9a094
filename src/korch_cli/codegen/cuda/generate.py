"""From a kernel body to the CUDA kernels that are worth measuring."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from itertools import zip_longest

from korch_cli.codegen.cuda.cost import total_cost
from korch_cli.codegen.cuda.part import Part
from korch_cli.codegen.cuda.plan import Plan, plans, print_step
from korch_cli.codegen.cuda.signature import Buffer, Signature, pointer
from korch_cli.codegen.describe import check_nest, check_types, describe, label, runtime_files
from korch_cli.codegen.expressions import CPP_TYPES, Tables
from korch_cli.codegen.lower import lower
from korch_cli.codegen.normalize import normalize
from korch_cli.core.errors import Refusal
from korch_cli.core.kernel import KernelBody
from korch_cli.core.launch import CudaKernel, Launch

_HEADER = "korch_cuda.h"
_MAX_VARIANTS = 3
_MOST_BLOCKS = (1 << 31) - 1
_ALIGNMENT = 256


def generate_cuda(body: KernelBody) -> tuple[CudaKernel, ...]:
    """Return a CUDA kernel for each schedule of a body that is worth measuring; equal bodies give equal text.

    All operands and results have to be aligned to 16 bytes, and none may overlap a result.

    Raises:
        Refusal: the body is not generated.
    """
    graph = body.graph
    check_types(graph)
    nests = [normalize(nest) for nest in lower(graph)]
    for nest in nests:
        check_nest(nest)
    signature = Signature(sum(1 for _ in graph.inputs()), len(graph.outputs))
    choices = [plans(nest, signature) for nest in nests]
    variants = min(_MAX_VARIANTS, max(map(len, choices)))
    chosen = [[options[min(i, len(options) - 1)] for options in choices] for i in range(variants)]
    # Schedules that differ in what a nest has no use for have the same text.
    return tuple({kernel.name: kernel for kernel in (_kernel(body, plan) for plan in chosen)}.values())


@cache
def cuda_headers() -> dict[str, str]:
    """Return the files that generated CUDA sources include, by name."""
    return runtime_files(_HEADER, "korch_integers.h")


def _kernel(body: KernelBody, chosen: Sequence[Plan]) -> CudaKernel:
    tables = Tables()
    columns: list[list[Part]] = []
    scratch: list[int] = []
    for plan in chosen:
        signature = Signature(sum(1 for _ in body.graph.inputs()), len(body.graph.outputs), len(scratch))
        columns.append([print_step(step, signature, tables) for step in plan.steps])
        scratch += [-(-size // _ALIGNMENT) * _ALIGNMENT for size in plan.scratch]
    launched = [group for row in zip_longest(*columns) for group in _together([part for part in row if part])]
    kind = " and ".join(dict.fromkeys(plan.kind for plan in chosen))
    functions = ["NAME"] if len(launched) == 1 else [f"NAME_{i + 1}" for i in range(len(launched))]
    texts = [_function(name, parts) for name, parts in zip(functions, launched, strict=True)]
    definitions = [f"static __device__ {line.removeprefix('static ')}" for line in tables.lines()]
    opening = f'#include "{_HEADER}"\n\nnamespace korch {{'
    blocks = [describe(body.graph, kind), opening, *(["\n".join(definitions)] if definitions else []), *texts]
    template = "\n\n".join([*blocks, "}  // namespace korch"]) + "\n"
    name = f"{label(body.graph)}_{hashlib.sha256(template.encode()).hexdigest()[:12]}"
    steps = [step for plan in chosen for step in plan.steps]
    read, written, flops = total_cost(body.graph, steps)
    return CudaKernel(
        name=name,
        digest=body.digest,
        schedule=kind,
        source=template.replace("NAME", name),
        launches=tuple(
            _launch(function.replace("NAME", name), parts) for function, parts in zip(functions, launched, strict=True)
        ),
        scratch=tuple(scratch),
        read_bytes=read,
        written_bytes=written,
        flops=flops,
    )


def _together(parts: list[Part]) -> list[list[Part]]:
    """Group parts that one launch can run: those with equal blocks."""
    groups: dict[int, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.threads, []).append(part)
    for group in groups.values():
        if sum(part.blocks for part in group) > _MOST_BLOCKS:
            raise Refusal("A launch would have more blocks than CUDA can number.")
    return list(groups.values())


def _buffers(parts: Sequence[Part]) -> list[Buffer]:
    return list(dict.fromkeys(buffer for part in parts for buffer in part.buffers))


def _launch(function: str, parts: Sequence[Part]) -> Launch:
    blocks = sum(part.blocks for part in parts)
    return Launch(function, (blocks, 1, 1), (parts[0].threads, 1, 1), 0, tuple(_buffers(parts)))


def _function(name: str, parts: Sequence[Part]) -> str:
    """The text of a kernel: one part, or several with a range of blocks each."""
    types = {buffer: dtype for part in parts for buffer, dtype in part.buffers.items()}
    written = frozenset(buffer for part in parts for buffer in part.written)
    parameters = ",\n    ".join(
        f"{'' if buffer in written else 'const '}{CPP_TYPES[types[buffer]]}* __restrict__ {pointer(buffer)}"
        for buffer in _buffers(parts)
    )
    lines = ["const int block = (int)blockIdx.x;", *parts[0].lines] if len(parts) == 1 else _ranges(parts)
    head = f'extern "C" __global__ void __launch_bounds__({parts[0].threads})\nNAME_OF(\n    {parameters}) {{'
    return "\n".join([head.replace("NAME_OF", name), *(f"  {line}" for line in lines), "}"])


def _ranges(parts: Sequence[Part]) -> list[str]:
    lines = []
    first = 0
    for i, part in enumerate(parts):
        last = first + part.blocks
        condition = f"if (blockIdx.x < {last}u) {{" if i < len(parts) - 1 else "{"
        lines.append(f"{'} else ' if i else ''}{condition}")
        lines.append(f"  const int block = (int)blockIdx.x - {first};")
        lines += [f"  {line}" for line in part.lines]
        first = last
    return [*lines, "}"]
