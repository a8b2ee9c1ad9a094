"""Static types of all tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.types import DType, TensorType
from korch_cli.load.constants import is_default_domain, overridable

_LARGEST_VALUE = 1024
"""Constants with more elements than this are no shapes: inference sees their types alone."""
_SKELETON_IR = 8
_MICROSOFT = "com.microsoft"
_LIKE_FIRST_INPUT = {
    (_MICROSOFT, "BiasGelu"): (0,),
    (_MICROSOFT, "FastGelu"): (0,),
    (_MICROSOFT, "Gelu"): (0,),
    (_MICROSOFT, "QuickGelu"): (0,),
    (_MICROSOFT, "RotaryEmbedding"): (0,),
    (_MICROSOFT, "SkipLayerNormalization"): (0, 3),
    (_MICROSOFT, "SkipSimplifiedLayerNormalization"): (0, 3),
    ("", "SimplifiedLayerNormalization"): (0,),
}
"""Operators of ONNX Runtime that onnx cannot infer, with the outputs that have the type of the first input."""
_LARGER = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
"""Those that do more to the result of an operator of three operands."""
_PRODUCTS = frozenset({"FusedMatMul", "TransposeMatMul"})
_ATTENTION = frozenset({"Attention", "MultiHeadAttention"})
_MISJUDGED = frozenset({"STFT"})
"""Operators that onnx infers wrongly: it overlooks that one-sided spectra are the default."""

_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_POOLS_ROUND_RIGHT = 22
"""Before this version onnx counts windows of ceil_mode that begin behind the operand; runtimes never do."""
_STAND_INS = "korch.inference"


def static_dims(info: onnx.ValueInfoProto) -> tuple[int, ...] | None:
    """Return the shape of a tensor, None where a dimension is not a number or it is no tensor."""
    if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
        return None
    dims = info.type.tensor_type.shape.dim
    if not all(d.HasField("dim_value") and d.dim_value >= 0 for d in dims):
        return None
    return tuple(d.dim_value for d in dims)


def take_stated(proto: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Remove the recorded types of what nodes make; return the static ones.

    Inference finds them again, for the dimensions that the inputs have now. What the file states is for the tensors
    about which inference has nothing to say.
    """
    graph = proto.graph
    stated = {}
    for info in (*graph.value_info, *graph.output):
        if static_dims(info) is not None:
            stated[info.name] = onnx.ValueInfoProto.FromString(info.SerializeToString())
    del graph.value_info[:]
    for output in graph.output:
        if output.name in stated:
            output.type.tensor_type.ClearField("shape")
    return stated


def infer(proto: onnx.ModelProto, stated: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Write every type that can be inferred into `proto`; `stated` fills in where inference finds no shape at all."""
    graph = proto.graph
    found = _inferred(proto, ())
    made = {name for node in graph.node for name in node.output if name}
    doubtful = _behind_pads(graph)
    silent = [info for name, info in stated.items() if name in made and not _has_shape(found.get(name))]
    unknown = [info for info in silent if info.name not in doubtful]
    if unknown:
        found = _inferred(proto, unknown)
        found.update((info.name, info) for info in unknown if not _has_shape(found.get(info.name)))
    found.update((info.name, _of_same_rank(info)) for info in silent if not _has_shape(found.get(info.name)))
    outputs = {output.name for output in graph.output}
    del graph.value_info[:]
    graph.value_info.extend(info for name, info in found.items() if name in made and name not in outputs)
    _write_outputs(proto, found)


def is_consistent(proto: onnx.ModelProto) -> bool:
    """Whether onnx finds no operator among those that it knows whose operands do not fit."""
    try:
        onnx.shape_inference.infer_shapes(_skeleton(proto, {}), data_prop=True, strict_mode=True)
    except Exception:  # of which there is none in particular
        return False
    return True


def types_of(proto: onnx.ModelProto) -> dict[str, TensorType]:
    """Return the static types that the model states, by tensor; tensors without one are absent."""
    return _static((*proto.graph.value_info, *proto.graph.output), proto.graph)


def _static(infos: Iterable[onnx.ValueInfoProto], graph: onnx.GraphProto) -> dict[str, TensorType]:
    """Return the static types among `infos`, and those of the inputs and initializers of `graph`."""
    found: dict[str, TensorType] = {}
    for info in (*infos, *graph.input):
        shape = static_dims(info)
        dtype = None if shape is None else DType.from_onnx(info.type.tensor_type.elem_type)
        if shape is not None and dtype is not None:
            found[info.name] = TensorType(dtype, shape)
    for tensor in graph.initializer:
        dtype = DType.from_onnx(tensor.data_type)
        if dtype is not None:
            found[tensor.name] = TensorType(dtype, tuple(tensor.dims))
    return found


def possible_types(proto: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Return the types of what nodes make, inferred or else stated; dimensions may be symbolic, and `proto` stays."""
    stated = {info.name: info.type for info in (*proto.graph.value_info, *proto.graph.output)}
    made = {name for node in proto.graph.node for name in node.output if name}
    inferred = {name: info.type for name, info in _inferred(proto, ()).items() if _has_shape(info)}
    return {name: typed for name, typed in (stated | inferred).items() if name in made}


def _write_outputs(proto: onnx.ModelProto, found: Mapping[str, onnx.ValueInfoProto]) -> None:
    """Write the shapes of the graph's outputs; their element types stay, for callers rely on them."""
    graph = proto.graph
    given = {t.name: onnx.helper.make_tensor_value_info(t.name, t.data_type, tuple(t.dims)) for t in graph.initializer}
    given.update((info.name, info) for info in graph.input)
    for output in graph.output:
        info = given.get(output.name) or found.get(output.name)
        if info is None or not _has_shape(info):
            continue
        if not output.type.WhichOneof("value"):
            output.type.CopyFrom(info.type)
        else:
            _write_shape(output.type.tensor_type, info.type.tensor_type.shape)


def _write_shape(tensor: onnx.TypeProto.Tensor, found: onnx.TensorShapeProto) -> None:
    """Write a shape; where it has no number, a dimension is what the file calls it, if that says anything."""
    before = list(tensor.shape.dim)
    tensor.shape.CopyFrom(found)
    for i, dim in enumerate(tensor.shape.dim):
        if dim.HasField("dim_value"):
            continue
        dim.Clear()
        if len(before) == len(found.dim) and before[i].HasField("dim_param"):
            dim.CopyFrom(before[i])


def _inferred(proto: onnx.ModelProto, stated: Iterable[onnx.ValueInfoProto]) -> dict[str, onnx.ValueInfoProto]:
    known = {info.name: info for info in stated}
    constants = _constants(proto)
    while True:
        try:
            inferred = onnx.shape_inference.infer_shapes(_skeleton(proto, known), data_prop=True)
        except Exception:
            # Inference is a service: a model that onnx cannot follow has fewer types, and more operators stay opaque.
            return {}
        found = {info.name: info for info in (*inferred.graph.value_info, *inferred.graph.output)}
        counted = {info.name: info for info in _selections(proto.graph, constants, found.values())}
        if counted.keys() <= known.keys():
            return found
        known |= counted


def _skeleton(proto: onnx.ModelProto, known: Mapping[str, onnx.ValueInfoProto]) -> onnx.ModelProto:
    """Return what inference needs of a model: no weights, and no values that a caller may replace."""
    skeleton = onnx.ModelProto(ir_version=_SKELETON_IR)
    skeleton.opset_import.extend(proto.opset_import)
    skeleton.functions.extend(proto.functions)
    graph, source = skeleton.graph, proto.graph
    graph.name = source.name or "graph"
    fixed = _constants(proto)
    for node in source.node:
        _add_node(skeleton, node)
    graph.input.extend(info for info in source.input if info.name not in fixed)
    for tensor in source.initializer:
        if tensor.name not in fixed:
            continue
        embedded = tensor.data_location != onnx.TensorProto.EXTERNAL
        if embedded and sum(1 for d in tensor.dims if d != 1) <= 1 and max(tensor.dims, default=1) <= _LARGEST_VALUE:
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tuple(tensor.dims)))
    graph.sparse_initializer.extend(source.sparse_initializer)
    # An output without a shape would hide the shape of the input that it is.
    made = {name for node in source.node for name in node.output}
    graph.output.extend(output for output in source.output if output.name in made)
    for output in graph.output:
        if output.name in known:
            output.CopyFrom(known[output.name])
        elif output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    outputs = {output.name for output in graph.output}
    graph.value_info.extend(info for name, info in known.items() if name not in outputs)
    return skeleton


def _constants(proto: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the initializers that no caller can replace."""
    replaceable = overridable(proto)
    return {tensor.name: tensor for tensor in proto.graph.initializer if tensor.name not in replaceable}


def _add_node(skeleton: onnx.ModelProto, node: onnx.NodeProto) -> None:
    """Add a node, or what onnx infers in its place."""
    if _is_pool(node) and _rounds_up(node) and not _is_padded_otherwise(node):
        pool = _newer_pool(node, len(skeleton.functions))
        skeleton.functions.append(pool)
        skeleton.graph.node.append(onnx.helper.make_node(pool.name, node.input, node.output, domain=pool.domain))
        if not any(opset.domain == pool.domain for opset in skeleton.opset_import):
            skeleton.opset_import.append(onnx.helper.make_opsetid(pool.domain, 1))
    else:
        skeleton.graph.node.extend(_familiar(node))


def _is_pool(node: onnx.NodeProto) -> bool:
    return is_default_domain(node.domain) and node.op_type in _POOLS


def _rounds_up(node: onnx.NodeProto) -> bool:
    return any(a.name == "ceil_mode" and a.i for a in node.attribute)


def _is_padded_otherwise(node: onnx.NodeProto) -> bool:
    """Whether it is a pool with dilated windows that pads itself: ONNX Runtime does so as if they were not dilated.

    Its result then is smaller than what onnx infers, and what exporters therefore write.
    """
    same = any(a.name == "auto_pad" and a.s in (b"SAME_UPPER", b"SAME_LOWER") for a in node.attribute)
    return _is_pool(node) and same and any(a.name == "dilations" and max(a.ints, default=1) > 1 for a in node.attribute)


def _behind_pads(graph: onnx.GraphProto) -> set[str]:
    """Return what is computed from such a pool's result: exporters that inferred the one inferred the others."""
    found: set[str] = set()
    for node in graph.node:
        if _is_padded_otherwise(node) or not found.isdisjoint(node.input):
            found.update(filter(None, node.output))
    return found


def _of_same_rank(info: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """The same type with every extent open."""
    found: onnx.ValueInfoProto = onnx.ValueInfoProto.FromString(info.SerializeToString())
    for dim in found.type.tensor_type.shape.dim:
        dim.Clear()
    return found


def _familiar(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """A node that onnx can infer in the place of one that it cannot; none where there is none."""
    alike = _LIKE_FIRST_INPUT.get((node.domain, node.op_type))
    if alike is not None:
        for name in (node.output[i] for i in alike if i < len(node.output)):
            if name:
                yield onnx.helper.make_node("Identity", node.input[:1], [name])
    elif node.domain == _MICROSOFT:
        yield from _familiar_microsoft(node)
    elif node.op_type not in _MISJUDGED and not _is_padded_otherwise(node):
        yield node


def _familiar_microsoft(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    if node.op_type in _LARGER:
        plain = onnx.helper.make_node(_LARGER[node.op_type], node.input[:3], node.output)
        plain.attribute.extend(a for a in node.attribute if not a.name.startswith("activation"))
        yield plain
    elif node.op_type in _PRODUCTS:
        yield from _plain_product(node)
    elif node.op_type in _ATTENTION:
        yield from _plain_attention(node)
    else:
        yield node


def _plain_product(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    given = {a.name: a.i for a in node.attribute}
    if given.get("transBatchA") or given.get("transBatchB"):
        return
    operands = list(node.input)
    for i, flag in enumerate(("transA", "transB")):
        if given.get(flag):
            # Of any rank; the name is one that no model has.
            operands[i] = f"{node.output[0]}\0{flag}"
            yield onnx.helper.make_node("Einsum", [node.input[i]], [operands[i]], equation="...ij->...ji")
    yield onnx.helper.make_node("MatMul", operands, node.output)


def _plain_attention(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    """The first result alone, where queries and values are of rank 3."""
    if node.op_type == "MultiHeadAttention":
        if len(node.input) > 2 and node.input[2]:
            operands = [node.input[0], node.input[2]]
            yield onnx.helper.make_node("Einsum", operands, node.output[:1], equation="bsh,btv->bsv")
    elif not any(a.name == "qkv_hidden_sizes" for a in node.attribute):
        # Queries, keys and values side by side, of one size.
        parts = [f"{node.output[0]}\0{kind}" for kind in ("all", "q", "k")]
        yield onnx.helper.make_node("Einsum", node.input[:2], parts[:1], equation="bsh,hw->bsw")
        yield onnx.helper.make_node("Split", parts[:1], [*parts[1:], node.output[0]], axis=2, num_outputs=3)


def _newer_pool(node: onnx.NodeProto, number: int) -> onnx.FunctionProto:
    """Return a function that is this pool at a version whose inference is right."""
    inputs, outputs = [
        [f"{kind}{i}" for i in range(len(names))] for kind, names in (("x", node.input), ("y", node.output))
    ]
    body = onnx.helper.make_node(node.op_type, inputs, outputs)
    body.attribute.extend(node.attribute)
    opset = onnx.helper.make_opsetid("", _POOLS_ROUND_RIGHT)
    return onnx.helper.make_function(_STAND_INS, f"{node.op_type}{number}", inputs, outputs, [body], [opset])


def _selections(
    graph: onnx.GraphProto, constants: Mapping[str, onnx.TensorProto], found: Iterable[onnx.ValueInfoProto]
) -> Iterator[onnx.ValueInfoProto]:
    """Yield the type of what each Compress with a known condition keeps, if that of its operand is known, too."""
    nodes = [n for n in graph.node if n.op_type == "Compress" and is_default_domain(n.domain)]
    types = _static(found, graph) if nodes else {}
    for node in nodes:
        condition, operand = constants.get(node.input[1]), types.get(node.input[0])
        if condition is None or operand is None or condition.data_location == onnx.TensorProto.EXTERNAL:
            continue
        axes = [a.i for a in node.attribute if a.name == "axis"]
        shape, axis = (list(operand.shape), axes[0]) if axes else ([operand.elements], 0)
        if not -len(shape) <= axis < len(shape) or len(condition.dims) != 1:
            continue
        # What a condition says beyond the end of the axis counts for nothing.
        shape[axis] = int(np.count_nonzero(numpy_helper.to_array(condition)[: shape[axis]]))
        yield onnx.helper.make_tensor_value_info(node.output[0], operand.dtype.onnx, shape)


def _has_shape(info: onnx.ValueInfoProto | None) -> bool:
    if info is None or not info.type.HasField("tensor_type"):
        return False
    return bool(info.type.tensor_type.HasField("shape"))
