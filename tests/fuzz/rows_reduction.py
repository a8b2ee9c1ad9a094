"""Reductions, normalisations, softmaxes, products, convolutions and pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from korch_cli.core.types import DType
from tests.fuzz.operators import MICROSOFT, enter, operator
from tests.fuzz.sketch import FLOATS, Call, Sketch, Tensor, Unfit

_F32 = (DType.F32,)
_REDUCED = (DType.F32, DType.F32, DType.F16, DType.F64, DType.I32, DType.I64)


def reduction(axes_input_since: int, dtypes: Sequence[DType] = _REDUCED) -> Callable[[Sketch], Call]:
    """Reduce over some axes, all or none; they are an attribute before the opset `axes_input_since`."""

    def make(s: Sketch) -> Call:
        x = s.pick(dtypes)
        if x.array.size == 0 and s.chance(50):
            raise Unfit
        attributes: dict[str, Any] = {"keepdims": s.integer(0, 1)} if s.chance(80) else {}
        axes = [a - x.rank if s.opset >= 11 and s.chance(30) else a for a in s.subset(range(x.rank), 0)]
        if s.opset < axes_input_since:
            return Call([x], {**attributes, **({"axes": axes} if axes else {})})
        if s.chance(20):
            attributes["noop_with_empty_axes"] = s.integer(0, 1)
        return Call([x, *([s.positions(*axes)] if axes or s.chance(20) else [])], attributes)

    return make


enter("ReduceSum", reduction(13))
enter("ReduceSum ReduceMean ReduceMax", reduction(13), until=12)
enter("ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2", reduction(18))
enter("ReduceLogSum ReduceLogSumExp ReduceSumSquare", reduction(18))
enter("ReduceMax ReduceMin", reduction(18, (DType.I8, DType.U8)), since=12)
enter("ReduceMax ReduceMin", reduction(20, (DType.BOOL,)), since=20)


@operator("ArgMax ArgMin")
def _arg(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64, DType.I32), range(1, 6))
    last = {"select_last_index": 1} if s.opset >= 12 and s.chance(30) else {}
    return Call([x], {"axis": s.axis(x, signed=s.opset >= 11), "keepdims": s.integer(0, 1), **last})


@operator("Softmax LogSoftmax Hardmax")
@operator("Softmax LogSoftmax")
def _softmax(s: Sketch) -> Call:
    x = s.pick(FLOATS, range(1, 6))
    return Call([x], {"axis": s.axis(x, signed=s.opset >= 11)} if s.chance(80) else {})


@operator("LayerNormalization", since=17)
@operator("RMSNormalization", since=23)
def _layer_norm(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64, DType.F16), range(1, 6))
    axis = s.axis(x)
    return Call([x, s.number(x.dtype, x.shape[axis:])], {"axis": axis, "epsilon": s.choose((1e-5, 0.01))})


@operator("LayerNormalization", since=17)
def _layer_norm_bias(s: Sketch) -> Call:
    x = s.pick(FLOATS, range(1, 6))
    shape = x.shape[-1:]
    return Call([x, s.number(x.dtype, shape), s.number(x.dtype, shape)], {}, s.choose((1, 1, 2, 3)))


@operator("SimplifiedLayerNormalization", since=13)
def _simplified(s: Sketch) -> Call:
    x = s.pick(_F32, range(1, 6))
    return Call([x, s.number(x.dtype, x.shape[-1:])], {"epsilon": 1e-5, "axis": -1})


@operator("SkipLayerNormalization", since=13, domain=MICROSOFT)
def _skip_norm(s: Sketch) -> Call:
    x = s.pick(_F32, (3,))
    y = s.pick(_F32, (3,), lambda t: t.shape == x.shape)
    return Call([x, y, s.number(x.dtype, x.shape[-1:]), s.number(x.dtype, x.shape[-1:])])


@operator("BatchNormalization", since=9)
def _batch_norm(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64), range(2, 6))
    own = [s.number(x.dtype, x.shape[1:2], positive=i == 3) for i in range(4)]
    return Call([x, *own], {"epsilon": s.choose((1e-5, 0.01))} if s.chance(50) else {})


@operator("InstanceNormalization")
def _instance_norm(s: Sketch) -> Call:
    # ONNX Runtime crashes where there are no elements.
    x = s.pick(_F32, range(3, 6), lambda t: t.array.size > 0)
    return Call([x, s.number(x.dtype, x.shape[1:2]), s.number(x.dtype, x.shape[1:2])])


@operator("GroupNormalization", since=18)
def _group_norm(s: Sketch) -> Call:
    x = s.pick(_F32, range(3, 6))
    groups = s.choose([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
    shape = (groups if s.opset < 21 else x.shape[1],)
    return Call([x, s.number(x.dtype, shape), s.number(x.dtype, shape)], {"num_groups": groups})


@operator("MeanVarianceNormalization", since=9)
def _mvn(s: Sketch) -> Call:
    x = s.pick(_F32, (4,))
    return Call([x], {"axes": s.choose(([0, 2, 3], [2, 3], [1, 2, 3]))} if s.chance(60) else {})


@operator("LpNormalization")
def _lp_norm(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64), range(1, 6))
    return Call([x], {"axis": s.axis(x), "p": s.integer(1, 2)})


@operator("LRN")
def _lrn(s: Sketch) -> Call:
    return Call([s.pick(_F32, (4,))], {"size": s.choose((1, 3, 5)), "alpha": 0.01, "beta": s.choose((0.75, 0.5))})


@operator("MatMul", since=9)
def _matmul(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F32, DType.F64, DType.F16, DType.I32), range(1, 5))
    fit = [t for t in s.tensors if t.dtype is x.dtype and t.rank and t.shape[-2:][0] == x.shape[-1]]
    if fit and s.chance(40):
        return Call([x, s.choose(fit)])
    columns = s.choose(((), (1,), (3,), (8,), (17,)))
    batch = x.shape[:-2] if x.rank > 2 and columns and s.chance(30) else ()
    return Call([x, s.number(x.dtype, (*batch, x.shape[-1], *columns))])


@operator("Gemm")
def _gemm(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64), (2,))
    attributes = {k: s.choose(v) for k, v in (("alpha", (0.5, 1.0)), ("beta", (0.0, 1.0, 2.0))) if s.chance(40)}
    flipped = {k: 1 for k in ("transA", "transB") if s.chance(35)}
    inner, rows = x.shape[:: 1 if "transA" in flipped else -1]
    columns = s.choose((1, 4, 7))
    y = s.number(x.dtype, (columns, inner) if "transB" in flipped else (inner, columns))
    bias = [s.number(x.dtype, s.choose(((), (columns,), (rows, 1), (rows, columns))))]
    return Call([x, y, *(bias if s.opset < 11 or s.chance(70) else [])], {**attributes, **flipped})


@operator("Einsum", since=12)
def _einsum(s: Sketch) -> Call:
    x = s.pick((DType.F32, DType.F64), (2, 3))
    if x.rank == 2:
        y = s.number(x.dtype, (x.shape[1], 3))
        return Call([x, y], {"equation": s.choose(("ij,jk->ik", "ij,jk->ki", "ij,jk", "ij,jk->i"))})
    y = s.number(x.dtype, (x.shape[0], x.shape[2], 2))
    return Call([x, y], {"equation": s.choose(("bij,bjk->bik", "bij,bjk->ibk", "bij,bjk->bi"))})


def _spatial(s: Sketch, x: Tensor, ceil: bool) -> dict[str, Any]:
    """Draw a window, strides, padding and dilations that fit into the last axes."""
    extents = x.shape[2:]
    window = [s.integer(1, max(1, min(3, e))) for e in extents]
    found: dict[str, Any] = {"kernel_shape": window}
    if s.chance(50):
        found["strides"] = [s.integer(1, 3) for _ in extents]
    padding = s.integer(0, 9)
    if padding < 4:
        found["pads"] = [s.integer(0, w - 1) for w in (*window, *window)]
    elif padding == 4:
        found["auto_pad"] = s.choose(("SAME_UPPER", "SAME_LOWER", "VALID"))
    if ceil and s.chance(30):
        found["ceil_mode"] = 1
    return found


@operator("Conv")
@operator("ConvTranspose")
def _conv(s: Sketch) -> Call:
    x = s.pick(_F32, range(3, 6), lambda t: t.array.size > 0)
    attributes = _spatial(s, x, ceil=False)
    channels = x.shape[1]
    group = s.choose([g for g in (1, 2, channels) if channels % g == 0])
    # The same weights serve Conv and ConvTranspose where there are as many channels before as after.
    weights = s.number(x.dtype, (channels, channels // group, *attributes["kernel_shape"]))
    if s.chance(30):
        attributes["dilations"] = [s.integer(1, 2) for _ in x.shape[2:]]
    bias = [s.number(x.dtype, (channels,))] if s.chance(50) else []
    return Call([x, weights, *bias], {**attributes, "group": group})


@operator("MaxPool AveragePool")
def _pool(s: Sketch) -> Call:
    x = s.pick(_F32, range(3, 6), lambda t: t.array.size > 0)
    return Call([x], _spatial(s, x, ceil=s.opset >= 10))


@operator("AveragePool LpPool")
def _counting_pool(s: Sketch) -> Call:
    x = s.pick(_F32, range(3, 6), lambda t: t.array.size > 0)
    return Call([x], {**_spatial(s, x, ceil=False)})


@operator("AveragePool", since=10)
def _padded_average(s: Sketch) -> Call:
    x = s.pick(_F32, range(3, 6), lambda t: t.array.size > 0)
    return Call([x], {**_spatial(s, x, ceil=True), "count_include_pad": 1})


@operator("MaxPool", since=10)
def _dilated_max(s: Sketch) -> Call:
    x = s.pick(_F32, range(3, 6), lambda t: t.array.size > 0)
    return Call(
        [x], {**_spatial(s, x, ceil=False), "dilations": [s.integer(1, 2) for _ in x.shape[2:]]}, s.integer(1, 2)
    )


@operator("GlobalAveragePool GlobalMaxPool")
@operator("GlobalLpPool", until=21)
def _global_pool(s: Sketch) -> Call:
    return Call([s.pick(_F32, range(3, 6), lambda t: t.array.size > 0)])


@operator("FusedMatMul", since=13, domain=MICROSOFT)
def _fused_matmul(s: Sketch) -> Call:
    x = s.pick(_F32, (2, 3))
    return Call([x, s.number(x.dtype, (4, x.shape[-1]))], {"alpha": 0.5, "transB": 1})
