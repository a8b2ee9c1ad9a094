"""What is common to all generated texts: which nests are generated, what a kernel says that it computes, its name."""

from __future__ import annotations

from importlib import resources

from korch_cli.codegen.expressions import CPP_TYPES
from korch_cli.codegen.nest import Nest, Reduction
from korch_cli.core.errors import Refusal
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.primitive import Elementwise, Reduce, WindowReduce
from korch_cli.core.text import print_op

_MAX_NAMED = 5


def runtime_files(*names: str) -> dict[str, str]:
    """Return files that generated sources include, by name."""
    folder = resources.files("korch_cli.codegen") / "runtime"
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def check_types(graph: PrimitiveGraph) -> None:
    """Raise a Refusal unless all values are of element types that kernels have."""
    for value in graph.values:
        if value.type.dtype not in CPP_TYPES:
            raise Refusal(f"The element type {value.type.dtype.text} is not generated.")


def check_nest(nest: Nest) -> None:
    """Raise a Refusal unless the reductions of a nest can be finished before its results."""
    for node in nest.reductions:
        assert isinstance(node.operation, Reduction)
        if not node.free <= set(nest.variables):
            raise Refusal("A reduction would run once for each step of another one.")


def describe(graph: PrimitiveGraph, kind: str) -> str:
    """Return a comment that says what a kernel computes, in the notation of the primitive graph."""
    arguments = {value.id: f"a{i}" for i, value in enumerate(graph.inputs())}
    lines = [f"// {name}: {graph.values[v].type}" for v, name in arguments.items()]
    for value in graph.primitives():
        operands = ", ".join(arguments.get(a) or _operand(graph, a) for a in value.args)
        lines.append(f"// v{value.id}: {value.type} = {print_op(value.op)} ({operands})")
    lines += [f"// r{i} = v{v}" for i, v in enumerate(graph.outputs)]
    return "\n".join([*lines, f"// Schedule: {kind}."])


def _operand(graph: PrimitiveGraph, v: int) -> str:
    value = graph.values[v]
    literal = getattr(value.op, "literal", None)
    return f"v{v}" if literal is None else str(literal)


def label(graph: PrimitiveGraph) -> str:
    """Return the functions of a body, as a name."""
    named: list[str] = []
    for value in graph.primitives():
        match value.op:
            case Elementwise(function) | Reduce(function) | WindowReduce(function):
                named.append(function)
            case _:
                named.append(type(value.op).__name__.lower())
    shown = named if len(named) <= _MAX_NAMED else [*named[: _MAX_NAMED - 1], "etc"]
    return "_".join(shown)
