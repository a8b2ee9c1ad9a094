"""From a kernel body to the kernels that are worth measuring."""

from __future__ import annotations

import hashlib
from functools import cache

from korch_cli.codegen.batches import BatchPrinter
from korch_cli.codegen.describe import check_nest, check_types, describe, label, runtime_files
from korch_cli.codegen.expressions import CPP_TYPES, Tables
from korch_cli.codegen.inplace import is_reused, reusable_operands
from korch_cli.codegen.lower import lower
from korch_cli.codegen.nest import Nest
from korch_cli.codegen.normalize import normalize
from korch_cli.codegen.printer import Printer
from korch_cli.codegen.schedule import Schedule, schedules, unit_cost
from korch_cli.codegen.segments import partition
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Kernel, KernelBody

_HEADER = "korch_vector.h"
_MAX_VARIANTS = 2


def generate(body: KernelBody) -> tuple[Kernel, ...]:
    """Return a kernel for each schedule of a body that is worth measuring; equal bodies give equal text.

    Raises:
        Refusal: the body is not generated.
    """
    graph = body.graph
    check_types(graph)
    nests = [normalize(part) for nest in lower(graph) for part in partition(normalize(nest))]
    for nest in nests:
        check_nest(nest)
    choices = [schedules(nest) for nest in nests]
    variants = min(_MAX_VARIANTS, max(map(len, choices)))
    kernels = []
    for i in range(variants):
        chosen = [options[min(i, len(options) - 1)] for options in choices]
        kernels.append(_kernel(body, list(zip(nests, chosen, strict=True))))
    return tuple(kernels)


@cache
def headers() -> dict[str, str]:
    """Return the files that generated sources include, by name."""
    return runtime_files(_HEADER, "korch_integers.h")


def _kernel(body: KernelBody, parts: list[tuple[Nest, Schedule]]) -> Kernel:
    tables = Tables()
    names = [f"part{i}" for i in range(len(parts))] if len(parts) > 1 else ["NAME"]
    pairs = reusable_operands(body.graph, parts)
    functions = [
        _function(name, body.graph, nest, _lines(nest, schedule, tables), pairs)
        for name, (nest, schedule) in zip(names, parts, strict=True)
    ]
    if len(parts) > 1:
        functions.append(_dispatcher(names, [schedule.units for _, schedule in parts]))
    kind = " and ".join(dict.fromkeys(schedule.kind for _, schedule in parts))
    blocks = [describe(body.graph, kind), f'#include "{_HEADER}"\n\nusing namespace korch;', *functions]
    if tables.lines():
        blocks.insert(2, "\n".join(tables.lines()))
    template = "\n\n".join(blocks) + "\n"
    digest = hashlib.sha256(template.encode()).hexdigest()[:12]
    name = f"{label(body.graph)}_{digest}"
    costs = [unit_cost(nest, schedule) for nest, schedule in parts]
    return Kernel(
        name=name,
        digest=body.digest,
        schedule=kind,
        source=template.replace("NAME", name),
        units=sum(schedule.units for _, schedule in parts),
        unit_bytes=max(moved for moved, _ in costs),
        unit_flops=max(flops for _, flops in costs),
        in_place=pairs,
    )


def _lines(nest: Nest, schedule: Schedule, tables: Tables) -> list[str]:
    printer = BatchPrinter if schedule.batched else Printer
    return printer(nest, schedule, tables).run()


_PARAMETERS = "(const void* const* in, void* const* out, int64_t begin, int64_t end)"


def _function(
    name: str, graph: PrimitiveGraph, nest: Nest, lines: list[str], pairs: tuple[tuple[int, int], ...]
) -> str:
    text = "\n".join(lines)
    pointers = []
    for i, value in enumerate(graph.inputs()):
        if f"a{i}[" in text or f"(a{i} +" in text:
            kind = CPP_TYPES[value.type.dtype]
            pointers.append(f"const {kind}* const a{i} = static_cast<const {kind}*>(in[{i}]);")
    for store in nest.stores:
        kind = CPP_TYPES[graph.values[graph.outputs[store.result]].type.dtype]
        alone = "" if is_reused(store, pairs) else "__restrict "
        pointers.append(f"{kind}* const {alone}r{store.result} = static_cast<{kind}*>(out[{store.result}]);")
    linkage = 'extern "C" void ' if name == "NAME" else "static void "
    content = "\n".join(f"  {line}" for line in (*pointers, *lines))
    return f"{linkage}{name}{_PARAMETERS} {{\n{content}\n}}"


def _dispatcher(names: list[str], units: list[int]) -> str:
    """The entry of a kernel with several nests: their units one after the other."""
    lines = []
    first = 0
    for name, count in zip(names, units, strict=True):
        last = first + count
        low, high = f"(begin > {first} ? begin : {first})", f"(end < {last} ? end : {last})"
        lines.append(f"  if (begin < {last} && end > {first}) {name}(in, out, {low} - {first}, {high} - {first});")
        first = last
    return f'extern "C" void NAME{_PARAMETERS} {{\n' + "\n".join(lines) + "\n}"
