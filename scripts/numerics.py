"""Say how far optimised models are from double precision, and how far their inputs in ONNX Runtime.

    python scripts/acceptance.py build/models -o build/acceptance
    python scripts/numerics.py build/models build/acceptance

The reference is onnx's own evaluator on the model with every float in float64. The error of an output is the root mean
square of what it is off, relative to that of the reference; half a unit in the last place of float32 at least. The
table has the output for which korch compares worst. Exits with 1 if it is off by more than twice as much as ONNX
Runtime with all optimisations. A model that the evaluator cannot run, or that korch left as it was, says so.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from korch_cli import load_session
from korch_cli.core.model import Bindings
from korch_cli.verify import bind_inputs, draw_inputs

Tensor = NDArray[Any]
MODELS = Path(__file__).parents[1] / "models"
MOST = 2.0
_LEAST_ERROR = 2.0**-24
_SINGLE, _DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of a model: relative errors of one of its outputs, or why there are none."""

    name: str
    output: str = ""
    runtime: float = 0.0
    korch: float = 0.0
    reason: str = ""

    @property
    def ratio(self) -> float:
        """How much farther off korch's output is than ONNX Runtime's."""
        return self.korch / self.runtime if self.runtime else 0.0


def main() -> int:
    """Read the command line, go through the models, print the table."""
    sys.path.insert(0, str(MODELS))
    from fetch import catalogue

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, help="where the models are, as models/fetch.py names them")
    parser.add_argument("optimised", type=Path, help="where scripts/acceptance.py left what it made of them")
    parser.add_argument("names", nargs="*", help="only these models")
    parser.add_argument("--runs", type=int, default=1, help="sets of random inputs (1)")
    chosen = parser.parse_args()
    entries = catalogue()
    written = {name: chosen.optimised / name / f"{name}.onnx" for name in chosen.names or entries}
    print("| model | output | ONNX Runtime | korch | ratio |\n| --- | --- | --: | --: | --- |", flush=True)
    rows = []
    for name, path in written.items():
        if path.is_file():
            row = judge(name, chosen.models / f"{name}.onnx", path, entries[name]["shapes"], chosen.runs)
            rows.append(row)
            print(line(row), flush=True)
    return int(not rows or any(row.ratio > MOST for row in rows))


def judge(name: str, source: Path, written: Path, shapes: Mapping[str, str], runs: int) -> Row:
    """Compare a model and what korch made of it with the reference."""
    if source.read_bytes() == written.read_bytes():
        return Row(name, reason="korch left it as it was")
    extents = {key: tuple(map(int, text.split("x"))) for key, text in shapes.items()}
    sets = draw_inputs(source, bind_inputs(source, Bindings({}, extents)), seed=0, runs=runs)
    try:
        evaluator = ReferenceEvaluator(widened(onnx.load(source)), new_ops=[GatherElements])
        wanted = [list(evaluator.run(None, {n: wide(a) for n, a in feeds.items()})) for feeds in sets]
    except Exception as error:
        return Row(name, reason=f"no reference: {type(error).__name__}: {str(error).splitlines()[0][:80]}")
    sessions = [load_session(path) for path in (source, written)]
    names = [output.name for output in sessions[0].get_outputs()]
    found = [[session.run(names, feeds) for feeds in sets] for session in sessions]
    return worst(name, names, wanted, found)


def worst(
    name: str, names: Sequence[str], wanted: Sequence[Sequence[Tensor]], found: Sequence[Sequence[Sequence[Tensor]]]
) -> Row:
    """Return the output for which the second of two programs compares worst with the first.

    Args:
        name: of the model.
        names: of its outputs.
        wanted: for each set of inputs, the reference of each output.
        found: the same, of each of both programs.
    """
    rows = [Row(name, reason="no output holds floats")]
    for i, output in enumerate(names):
        reference = [np.asarray(each[i]) for each in wanted]
        if reference[0].dtype.kind == "f":
            runtime, korch = (error(reference, [np.asarray(each[i]) for each in program]) for program in found)
            rows.append(Row(name, output, runtime, korch))
    return max(rows, key=lambda row: row.ratio)


class GatherElements(OpRun):
    """In the place of the evaluator's own, which takes the wrong rows where there is one."""

    op_domain = ""

    def _run(self, data: Tensor, indices: Tensor, axis: int = 0) -> tuple[Tensor]:
        axis %= data.ndim
        reached = tuple(slice(None if i == axis else extent) for i, extent in enumerate(indices.shape))
        return (np.take_along_axis(data[reached], indices, axis),)


def error(reference: Sequence[Tensor], found: Sequence[Tensor]) -> float:
    """Return the root mean square of a difference, relative to that of the reference."""
    off = sum(float(np.square(wide(a) - wide(b)).sum()) for a, b in zip(found, reference, strict=True))
    size = sum(float(np.square(wide(b)).sum()) for b in reference)
    return max(float(np.sqrt(off / size)) if size else float(np.sqrt(off)), _LEAST_ERROR)


def wide(array: Tensor) -> Tensor:
    """Return floats in float64, and everything else as it is."""
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with float64 in the place of float32 throughout, functions and subgraphs included."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for graph in (result.graph, *_subgraphs(result.graph.node)):
        _widen_graph(graph)
    for function in result.functions:
        _widen_nodes(function.node)
        for graph in _subgraphs(function.node):
            _widen_graph(graph)
    return result


def _subgraphs(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                if graph.node:
                    yield graph
                    yield from _subgraphs(graph.node)


def _widen_graph(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == _SINGLE:
            info.type.tensor_type.elem_type = _DOUBLE
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    _widen_nodes(graph.node)


def _widen_nodes(nodes: Sequence[onnx.NodeProto]) -> None:
    for node in nodes:
        if node.op_type == "BatchNormalization":
            # Before version 14 the evaluator moves the means as in training, by 1 - momentum.
            kept = [attribute for attribute in node.attribute if attribute.name != "momentum"]
            del node.attribute[:]
            node.attribute.extend([*kept, onnx.helper.make_attribute("momentum", 1.0)])
        for attribute in node.attribute:
            if attribute.t.data_type == _SINGLE:
                _widen_tensor(attribute.t)
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == _SINGLE:
                attribute.i = _DOUBLE
            elif node.op_type == "Constant" and attribute.name in ("value_float", "value_floats"):
                numbers = attribute.f if attribute.name == "value_float" else list(attribute.floats)
                attribute.CopyFrom(
                    onnx.helper.make_attribute("value", numpy_helper.from_array(np.array(numbers, np.float64)))
                )


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == _SINGLE:
        array = numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def line(row: Row) -> str:
    """Return a row of the table."""
    if row.reason:
        return f"| {row.name} | {row.reason} | | | |"
    verdict = "" if row.ratio <= MOST else ", FAILED"
    return f"| {row.name} | {row.output} | {row.runtime:.2e} | {row.korch:.2e} | {row.ratio:.2f}{verdict} |"


if __name__ == "__main__":
    sys.exit(main())
