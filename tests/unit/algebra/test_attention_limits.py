"""What MultiHeadAttention and softmax without a guard cannot say stays written out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from korch_cli.algebra import simplify
from korch_cli.algebra.families import entered
from korch_cli.core.model import Bindings
from korch_cli.core.types import Array
from korch_cli.load import load

RULES = {rule.apply.__name__: rule for rule in entered()}
HEAD = '<ir_version: 8, opset_import: ["": 17]>'
ATTENTION = """g (float[2, 3, {qk}] q, float[2, 5, {qk}] k, float[2, 5, {v}] v) => (float[2, 3, {v}] y)
    <float s = {{{scale}}}, int64[4] sq = {{2, 3, 2, {width}}}, int64[4] sk = {{2, 5, 2, {width}}},
    int64[4] sv = {{2, 5, 2, {depth}}}, int64[3] sy = {{2, 3, {v}}}> {{
    q1 = Reshape<allowzero = 1>(q, sq) q2 = Transpose<perm = [0, 2, 1, 3]>(q1)
    k1 = Reshape<allowzero = 1>(k, sk) k2 = Transpose<perm = [0, 2, 3, 1]>(k1)
    v1 = Reshape<allowzero = 1>(v, sv) v2 = Transpose<perm = [0, 2, 1, 3]>(v1)
    a = MatMul(q2, k2) b = Mul(a, s) c = Mul(b, s) p = Softmax(c) m = MatMul(p, v2)
    o = Transpose<perm = [0, 2, 1, 3]>(m) y = Reshape<allowzero = 1>(o, sy) }}"""
GUARDED = """g ({t}[2, 3, 4] q, {t}[2, 4, 3] k, {t}[3, 3] given) => ({t}[2, 3, 3] y) <{t} zero = {{0}}> {{
    s = MatMul(q, k) a = Add(s, {mask}) p = Softmax(a) n = IsNaN(p) y = Where(n, zero, p) }}"""


def simplified(proto: onnx.ModelProto, rule: str, folder: Path) -> Any:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    shapes = {i.name: tuple(d.dim_value for d in i.type.tensor_type.shape.dim) for i in proto.graph.input}
    return simplify(load(path, Bindings({}, shapes)), chosen=[RULES[rule]])


@pytest.mark.parametrize(
    ("scale", "width", "depth", "raised"),
    [
        ("0.5", 4, 3, True),
        ("-2", 4, 3, True),
        ("0", 4, 3, False),
        ("1e-30", 4, 3, False),
        ("1e38", 4, 3, False),
        ("0.5", 0, 3, False),
        ("0.5", 4, 0, False),
    ],
)
def test_attention(tmp_path: Path, scale: str, width: int, depth: int, raised: bool) -> None:
    """ONNX Runtime takes a scale of 0 for the usual one, and divides by the widths of heads."""
    text = ATTENTION.format(qk=2 * width, v=2 * depth, scale=scale, width=width, depth=depth)
    found = simplified(parser.parse_model(HEAD + text), "raise_attention", tmp_path)
    assert (found is not None) == raised


def masked(dtype: Any, row: list[float]) -> Array:
    mask = np.zeros((3, 3), dtype)
    mask[1] = row
    return mask


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("row", "goes"),
    [
        ([0, -np.inf, -np.inf], True),
        ([-1e4, -1e4, -1e4], True),
        ([-np.inf, -np.inf, -np.inf], False),
        ([0, np.nan, 0], False),
        ([0, np.inf, 0], False),
    ],
)
def test_guards(tmp_path: Path, dtype: Any, row: list[float], goes: bool) -> None:
    assert (guarded(tmp_path, masked(dtype, row)) is not None) == goes


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_smallest_number_is_as_good_as_minus_infinity(tmp_path: Path, dtype: Any) -> None:
    """In float16, the smallest number less 16 is -inf already."""
    least = float(np.finfo(dtype).min)
    assert guarded(tmp_path, masked(dtype, [least, least, least])) is None
    assert guarded(tmp_path, masked(dtype, [least, 0, least])) is not None


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_mask_that_is_given_may_have_any_row(tmp_path: Path, dtype: Any) -> None:
    assert guarded(tmp_path, np.zeros((3, 3), dtype), "given") is None


def guarded(folder: Path, mask: Array, name: str = "mask") -> Any:
    kind = {"f2": "float16", "f4": "float", "f8": "double"}[mask.dtype.str[1:]]
    proto = parser.parse_model(HEAD + GUARDED.format(t=kind, mask=name))
    proto.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
    return simplified(proto, "drop_softmax_guards", folder)
