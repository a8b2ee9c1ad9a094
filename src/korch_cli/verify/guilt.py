"""Which kernels of a model compute something else than their functions say."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper

from korch_cli.core.types import Array
from korch_cli.verify.child import Child, ChildError, Subject, child
from korch_cli.verify.compare import compare
from korch_cli.verify.inputs import read_proto
from korch_cli.verify.library import CPU_PROVIDER

_KERNEL_SECONDS = 60.0

_Tensors = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class _Experiment:
    """One kernel: a model of one node, and the nodes of the whole model that it stands for."""

    kernel: str
    model: Path
    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def find_guilty(
    model: Path,
    library: Path,
    domain: str,
    feeds: Sequence[Mapping[str, Array]],
    *,
    rtol: float,
    atol: float,
    threads: int,
    provider: str = CPU_PROVIDER,
) -> tuple[tuple[str, str], ...]:
    """Return the kernels that deviate from their functions when given the same operands, each with a sentence.

    The model runs once per set of inputs without the library and without optimisations, and shows what goes into and
    comes out of each node of `domain`. Each kernel then runs alone on these operands, in another process; one that
    crashes it is guilty as well. Tolerances are those of `verify_models`. No kernel is guilty of a model that does not
    even run without the library. The folder of `model` has to take a file. Kernels run on `provider`, all else on the
    CPU.
    """
    proto = read_proto(model)
    nodes = [node for node in proto.graph.node if node.domain == domain]
    guilty: dict[str, str] = {}
    names = {name for node in nodes for name in (*node.input, *node.output) if name}
    constants = _constants(proto, names, model.parent)
    with tempfile.TemporaryDirectory(prefix="korch-blame-") as scratch, _exposed(model, proto, names) as exposed:
        experiments: tuple[_Experiment, ...] | None = None
        for feed in feeds:
            observed = _observed(exposed, feed, threads)
            if observed is None:
                break
            tensors = {**constants, **observed, **feed}
            if experiments is None:
                experiments = tuple(_experiments(proto, nodes, tensors, Path(scratch)))
            innocent = [e for e in experiments if e.kernel not in guilty]
            guilty.update(_tried(innocent, library, tensors, rtol, atol, threads, provider))
    return tuple(guilty.items())


def _constants(proto: onnx.ModelProto, names: Set[str], folder: Path) -> dict[str, Array]:
    """Return the initializers of these names; no other data is read."""
    found = {}
    for tensor in proto.graph.initializer:
        if tensor.name in names:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            if external_data_helper.uses_external_data(copy):
                external_data_helper.load_external_data_for_tensor(copy, str(folder))
            found[tensor.name] = numpy_helper.to_array(copy)
    return found


@contextmanager
def _exposed(model: Path, proto: onnx.ModelProto, names: Set[str]) -> Iterator[Path]:
    """Write a model that has these tensors as outputs beside the model, whose external data is its own too."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(proto)
    present = {i.name for i in (*proto.graph.input, *proto.graph.output)} | {t.name for t in proto.graph.initializer}
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - present))
    path = model.with_name(f".exposed-{model.name}")
    try:
        path.write_bytes(exposed.SerializeToString())
        yield path
    finally:
        path.unlink(missing_ok=True)


def _observed(exposed: Path, feed: Mapping[str, Array], threads: int) -> _Tensors | None:
    try:
        with child() as process:
            process.open(Subject("without the library", exposed, None, optimize=False), threads)
            return dict(process.run(feed))
    except ChildError:
        return None


def _experiments(
    proto: onnx.ModelProto, nodes: Sequence[onnx.NodeProto], tensors: _Tensors, folder: Path
) -> Iterator[_Experiment]:
    """Write a model for each kernel; its operands are named by position, for a node may read one tensor twice."""
    by_kernel: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        by_kernel.setdefault(node.op_type, []).append(node)
    for kernel, users in by_kernel.items():
        node = users[0]
        inputs = tuple(f"in{i}" if name else "" for i, name in enumerate(node.input))
        outputs = tuple(f"out{i}" if name else "" for i, name in enumerate(node.output))
        alone = helper.make_node(kernel, inputs, outputs, name=kernel, domain=node.domain)
        alone.attribute.extend(node.attribute)
        graph = helper.make_graph(
            [alone], kernel, _infos(inputs, node.input, tensors), _infos(outputs, node.output, tensors)
        )
        single = helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version)
        path = folder / f"kernel{len(list(folder.iterdir()))}.onnx"
        onnx.save_model(single, path)
        yield _Experiment(kernel, path, tuple(users), inputs, outputs)


def _infos(names: Sequence[str], sources: Sequence[str], tensors: _Tensors) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(tensors[source].dtype)), tensors[source].shape
        )
        for name, source in zip(names, sources, strict=True)
        if name
    ]


def _tried(
    experiments: Sequence[_Experiment],
    library: Path,
    tensors: _Tensors,
    rtol: float,
    atol: float,
    threads: int,
    provider: str,
) -> Iterator[tuple[str, str]]:
    """Yield the kernels that fail on these tensors; a process serves until a kernel ends it."""
    remaining = list(experiments)
    while remaining:
        with child() as process:
            while remaining:
                experiment = remaining.pop(0)
                try:
                    sentence = _try_kernel(process, experiment, library, tensors, rtol, atol, threads, provider)
                except ChildError as error:
                    yield experiment.kernel, f"The kernel failed: {error.sentence}."
                    if error.stage in ("crash", "time"):
                        break
                else:
                    if sentence is not None:
                        yield experiment.kernel, sentence


def _try_kernel(
    process: Child,
    experiment: _Experiment,
    library: Path,
    tensors: _Tensors,
    rtol: float,
    atol: float,
    threads: int,
    provider: str,
) -> str | None:
    process.open(Subject(experiment.kernel, experiment.model, library, False, provider), threads)
    for node in experiment.nodes:
        operands = {name: tensors[source] for name, source in zip(experiment.inputs, node.input, strict=True) if name}
        results = dict(process.run(operands, _KERNEL_SECONDS))
        for name, source in zip(experiment.outputs, node.output, strict=True):
            found = compare(source, tensors[source], results[name], rtol=rtol, atol=atol) if name else None
            if found is not None and found.excess > 1.0:
                return found.reason or (
                    f"Its result {source!r} in node {node.name!r} differs from its function's in "
                    f"{found.error.mismatches} of {found.error.elements} elements, by up to {found.error.max_abs:.3g}."
                )
    return None
