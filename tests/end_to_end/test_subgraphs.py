"""Bodies of If, Loop and Scan get kernels too; what they compute, and their signatures, stay as they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

from korch_cli.core.model import Bindings
from korch_cli.core.types import Array
from korch_cli.pipeline import Fusion, build_fusions, plan_fusion
from korch_cli.toolchain import find_compiler

HEAD = '<ir_version: 8, opset_import: ["": 17]>'


@dataclass(frozen=True)
class Row:
    """A model in ONNX's text form.

    Attributes:
        text: the model.
        inside: how many custom nodes there are in bodies, at least.
        left: types of nodes that are still in some body.
        gone: types of nodes that are in no body any more.
    """

    text: str
    inside: int
    left: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


ROWS = {
    "both branches": Row(
        """g (bool c, float[4,5] x) => (float[4,5] y) <float[5] w = {1,2,3,4,5}> {
          h = Relu(x)
          y0 = If (c) <
            then_branch = a () => (float[4,5] t) {
              k = Constant<value_float = 2.0>() m = Mul(h, k) n = Add(m, w) t = Tanh(n) },
            else_branch = b () => (float[4,5] t) { n = Sub(x, w) e = Exp(n) t = Neg(e) }>
          y = Add(y0, h) }""",
        2,
        gone=frozenset({"Mul", "Add", "Tanh", "Exp", "Constant"}),
    ),
    "a body inside a body": Row(
        """g (bool c, bool d, float[4,5] x) => (float[4,5] y) <float[5] w = {1,2,3,4,5}> {
          h = Relu(x)
          y = If (c) <
            then_branch = a () => (float[4,5] t) {
              k = Constant<value = float[5] {5,4,3,2,1.123456789}>()
              m = Mul(h, k)
              u = If (d) <
                then_branch = aa () => (float[4,5] v) { q = Add(m, k) r = Exp(q) s = Mul(r, w) v = Sqrt(s) },
                else_branch = ab () => (float[4,5] v) { q = Sub(x, m) v = Abs(q) }>
              n = Add(m, u)
              t = Tanh(n) },
            else_branch = b () => (float[4,5] t) { n = Sub(x, h) e = Exp(n) t = Neg(e) }> }""",
        5,
        frozenset({"If"}),
        frozenset({"Exp", "Sqrt", "Tanh", "Abs"}),
    ),
    "only the inner body": Row(
        """g (bool c, bool d, int64[3] i, float[3] x) => (float[3] y) {
          y = If (c) <
            then_branch = a () => (float[3] t) {
              t = If (d) <
                then_branch = aa () => (float[3] v) { q = Add(x, x) v = Exp(q) },
                else_branch = ab () => (float[3] v) { v = Identity(x) }> },
            else_branch = b () => (float[3] t) { t = Identity(x) }> }""",
        1,
        frozenset({"If"}),
        frozenset({"Exp"}),
    ),
    "branches of different shapes": Row(
        """g (bool c, float[4,5] x) => (float[N,M] y) {
          y = If (c) <
            then_branch = a () => (float[4,1] t) { m = ReduceMax<axes = [1]>(x) t = Exp(m) },
            else_branch = b () => (float[4,5] t) { m = Neg(x) t = Exp(m) }> }""",
        2,
        gone=frozenset({"Exp"}),
    ),
    "names that are used outside": Row(
        """g (bool c, float[4,5] x) => (float[4,5] y, float[4,5] z) {
          z = HardSwish(x)
          y = If (c) <
            then_branch = a () => (float[4,5] t) { t = HardSwish(z) },
            else_branch = b () => (float[4,5] t) { u = Softmax(z) t = HardSwish(u) }> }""",
        2,
    ),
    "an initializer of a branch that shadows one outside": Row(
        """g (bool c, float[3] x) => (float[3] y) <float[3] w = {1.5,2.5,3.123456789}> {
          h = Mul(x, w)
          y = If (c) <
            then_branch = a () => (float[3] t) <float[3] v = {7.5,8.5,9.123456789}> { m = Mul(h, v) t = Exp(m) },
            else_branch = b () => (float[3] t) <float[3] v = {0.5,1.5,2.123456789}> { m = Mul(h, v) t = Neg(m) }> }""",
        2,
        gone=frozenset({"Exp", "Neg"}),
    ),
    "a result that is a constant": Row(
        """g (bool c, float[3] x) => (float[3] y, float[3] z) {
          y, z = If (c) <
            then_branch = a () => (float[3] t, float[3] k) {
              k = Constant<value = float[3] {1,2,3}>() m = Mul(x, k) t = Exp(m) },
            else_branch = b () => (float[3] t, float[3] k) <float[3] k = {3,2,1}> { m = Add(x, k) t = Neg(m) }> }""",
        2,
    ),
    "what has no static shape": Row(
        """g (bool c, float[6] x) => (float[N] y, float[6] z) {
          n = NonZero(x)
          y, z = If (c) <
            then_branch = a () => (float[M] t, float[6] u) {
              k = Constant<value_ints = [0]>() p = Squeeze(n, k) f = Cast<to = 1>(p) t = Exp(f) e = Exp(x) u = Neg(e) },
            else_branch = b () => (float[M] t, float[6] u) { t = Neg(x) a0 = Abs(x) u = Sqrt(a0) }> }""",
        2,
        frozenset({"Squeeze", "Exp"}),
        frozenset({"Sqrt"}),
    ),
    "a random node": Row(
        """g (bool c, float[6] x) => (float[6] y) {
          y = If (c) <
            then_branch = a () => (float[6] t) {
              r = RandomNormalLike(x) z = Sub(r, r) e = Exp(x) n = Neg(e) t = Add(n, z) },
            else_branch = b () => (float[6] t) { e = Abs(x) t = Sqrt(e) }> }""",
        2,
        frozenset({"RandomNormalLike", "Add"}),
        frozenset({"Exp", "Sqrt"}),
    ),
    "a loop": Row(
        """g (float[4,5] x) => (float[4,5] y, float[N,4,1] z) <int64 M = {3}, bool T = {1}> {
          h = Relu(x)
          y, z = Loop (M, T, h) <
            body = b (int64 i, bool ci, float[4,5] s) => (bool co, float[4,5] so, float[4,1] sc) {
              co = Identity(ci) f = Cast<to = 1>(i) a = Add(s, f) e = Tanh(a) so = Mul(e, x)
              m = ReduceMax<axes = [1], keepdims = 1>(so) sc = Sqrt(m) }> }""",
        1,
        gone=frozenset({"Tanh", "Sqrt"}),
    ),
    "a loop that counts in a vector": Row(
        """g (float[5] x) => (float[5] y) <int64 M = {3}, bool T = {1}> {
          y = Loop (M, T, x) <
            body = b (int64[1] i, bool ci, float[5] s) => (bool co, float[5] so) {
              co = Identity(ci) f = Cast<to = 1>(i) a = Add(s, f) so = Tanh(a) }> }""",
        1,
        gone=frozenset({"Tanh"}),
    ),
    "a loop that stops by itself": Row(
        """g (float[5] x) => (float[5] y) <int64 M = {20}, bool T = {1}> {
          y = Loop (M, T, x) <
            body = b (int64 i, bool ci, float[5] s) => (bool co, float[5] so) {
              two = Constant<value_float = 2.0>() so = Mul(s, two) b0 = Abs(so) mx = ReduceMax<keepdims = 0>(b0)
              lim = Constant<value_float = 30.0>() co = Less(mx, lim) }> }""",
        1,
        gone=frozenset({"Less"}),
    ),
    "a state that grows": Row(
        """g (float[1,5] x) => (float[N,5] y) <int64 M = {3}, bool T = {1}> {
          h = Relu(x)
          y = Loop (M, T, h) <
            body = b (int64 i, bool ci, float[K,5] s) => (bool co, float[K2,5] so) {
              co = Identity(ci) e = Tanh(x) p = Mul(e, x) q = Exp(s) r = Neg(q) so = Concat<axis = 0>(r, p) }> }""",
        1,
        frozenset({"Exp", "Neg", "Concat"}),
        frozenset({"Tanh"}),
    ),
    "states that are exchanged, of two shapes": Row(
        """g (float[1,5] x, float[5,1] w) => (float[P,Q] y, float[R,S] z) <int64 M = {3}, bool T = {1}> {
          y, z = Loop (M, T, x, w) <
            body = b (int64 i, bool ci, float[A,B] s, float[C,D] t) => (bool co, float[C,D] so, float[A,B] to) {
              co = Identity(ci) so = Exp(t) to = Neg(s) e = Tanh(x) u = Mul(e, x) }> }""",
        0,
        frozenset({"Exp", "Neg"}),
    ),
    "a loop without a turn": Row(
        """g (float[5] x) => (float[5] y, float[N,5] z) <int64 M = {0}, bool T = {1}> {
          y, z = Loop (M, T, x) <
            body = b (int64 i, bool ci, float[5] s) => (bool co, float[5] so, float[5] sc) {
              co = Identity(ci) e = Exp(s) so = Neg(e) sc = Sqrt(e) }> }""",
        1,
        gone=frozenset({"Exp", "Sqrt"}),
    ),
    "a loop in a loop": Row(
        """g (float[3] x) => (float[3] y) <int64 M = {2}, bool T = {1}> {
          y = Loop (M, T, x) <
            body = b (int64 i, bool ci, float[3] s) => (bool co, float[3] so) {
              co = Identity(ci) e = Exp(s) q = Neg(e)
              so = Loop (M, T, q) <
                body = bb (int64 j, bool cj, float[3] r) => (bool cp, float[3] ro) {
                  cp = Identity(cj) u = Mul(r, x) v = Tanh(u) ro = Add(v, r) }> }> }""",
        0,
        frozenset({"Loop", "Exp", "Tanh"}),
    ),
    "a loop in a loop, on what is known outside": Row(
        """g (float[3] x) => (float[3] y, float[N,3] z) <int64 M = {2}, bool T = {1}> {
          y, z = Loop (M, T, x) <
            body = b (int64 i, bool ci, float[3] s) => (bool co, float[3] so, float[3] sc) {
              co = Identity(ci) e = Exp(s) so = Neg(e)
              sc = Loop (M, T, so) <
                body = bb (int64 j, bool cj, float[3] r) => (bool cp, float[3] ro) {
                  cp = Identity(cj) u = Mul(r, x) v = Tanh(u) ro = Add(v, r) }> }> }""",
        2,
        frozenset({"Loop"}),
        frozenset({"Exp", "Tanh"}),
    ),
    "a scan": Row(
        """g (float[5] s0, float[7,5] x) => (float[5] y, float[7,5] z) {
          y, z = Scan<num_scan_inputs = 1, body = b (float[5] s, float[5] xi) => (float[5] so, float[5] o) {
            a = Add(s, xi) t = Tanh(a) so = Mul(t, xi) o = Exp(so) }>(s0, x) }""",
        1,
        gone=frozenset({"Tanh", "Exp"}),
    ),
    "a scan over the last axis, backwards": Row(
        """g (float[5] s0, float[5,7] x) => (float[5] y, float[7,5] z) {
          y, z = Scan<num_scan_inputs = 1, scan_input_axes = [-1], scan_input_directions = [1],
            body = b (float[5] s, float[5] xi) => (float[5] so, float[5] o) {
              a = Add(s, xi) t = Tanh(a) so = Mul(t, xi) o = Exp(so) }>(s0, x) }""",
        1,
        gone=frozenset({"Tanh", "Exp"}),
    ),
    "a condition that is known": Row(
        """g (float[4,5] x) => (float[4,5] y) {
          s = Shape(x) zero = Constant<value_int = 0>() four = Constant<value_int = 4>() d = Gather(s, zero)
          c = Equal(d, four)
          y = If (c) <
            then_branch = a () => (float[4,5] t) { e = Exp(x) t = Neg(e) },
            else_branch = b () => (float[4,5] t) { t = Relu(x) }> }""",
        0,
        gone=frozenset({"Neg", "Relu"}),
    ),
    "a condition that is known, inside a body": Row(
        """g (bool c, float[4,5] x) => (float[4,5] y) {
          y = If (c) <
            then_branch = a () => (float[4,5] t) {
              s = Shape(x) zero = Constant<value_int = 0>() d = Gather(s, zero) four = Constant<value_int = 4>()
              k = Equal(d, four)
              u = If (k) <
                then_branch = aa () => (float[4,5] v) <float[5] w = {1,2,3,4,5.123456789}> { m = Mul(x, w) v = Exp(m) },
                else_branch = ab () => (float[4,5] v) { v = Relu(x) }>
              t = Neg(u) },
            else_branch = b () => (float[4,5] t) { e = Tanh(x) t = Abs(e) }> }""",
        2,
        gone=frozenset({"If", "Exp", "Relu", "Neg", "Tanh"}),
    ),
    "a branch that hides a tensor outside": Row(
        """g (bool c, float[2] x) => (float[2] y, float[2] z) <float[2] w = {1, 2}, bool k = {1}> {
          y = If (c) <
            then_branch = a () => (float[2] t) <float[2] w = {30, 40}> { t = Mul(x, w) },
            else_branch = b () => (float[2] t) { t = Neg(x) }>
          z = If (k) <
            then_branch = p () => (float[2] t) <float[2] w = {50, 60}> { t = Mul(x, w) },
            else_branch = q () => (float[2] t) { t = Abs(x) }> }""",
        1,
        frozenset({"Mul"}),
        frozenset({"Neg"}),
    ),
    "a branch that gives one value twice": Row(
        """g (float[3] x) => (float[3] y, float[3] z) <bool c = {1}> {
          y, z = If (c) <
            then_branch = a () => (float[3] t, float[3] t2) { e = Exp(x) t = Neg(e) t2 = Identity(t) },
            else_branch = b () => (float[3] t, float[3] t2) { t = Relu(x) t2 = Abs(x) }> }""",
        0,
        gone=frozenset({"Neg"}),
    ),
}


@dataclass(frozen=True)
class Written:
    """What forced fusion made of the rows."""

    folder: Path
    library: Path
    fusions: Mapping[str, Fusion]

    def source(self, name: str) -> Path:
        return self.folder / f"{name}.onnx"

    def output(self, name: str) -> Path:
        return self.folder / f"{name}.out.onnx"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("subgraphs")
    fusions = {}
    for name, row in ROWS.items():
        proto = parser.parse_model(f"{HEAD} {row.text}")
        (folder / f"{name}.onnx").write_bytes(proto.SerializeToString())
        fusions[name] = plan_fusion(folder / f"{name}.onnx", Bindings({}, {}))
    done = Written(folder, folder / "kernels.so", fusions)
    outputs = [done.output(name) for name in ROWS]
    build_fusions(list(fusions.values()), outputs, done.library, find_compiler(None), folder / "objects", 2)
    return done


def run(path: Path, feeds: Mapping[str, Array], library: Path | None, *, optimize: bool) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    if library is not None:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(path.read_bytes(), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, dict(feeds))]


def drawn(path: Path) -> Iterator[dict[str, Array]]:
    """Inputs for every combination of the conditions."""
    inputs = onnx.load(path).graph.input
    for bits in range(4):
        rng = np.random.default_rng(bits)
        feeds: dict[str, Array] = {}
        flags = 0
        for info in inputs:
            shape = [dim.dim_value for dim in info.type.tensor_type.shape.dim]
            if info.type.tensor_type.elem_type == onnx.TensorProto.BOOL:
                feeds[info.name] = np.array(bool(bits >> flags & 1))
                flags += 1
            elif info.type.tensor_type.elem_type == onnx.TensorProto.INT64:
                feeds[info.name] = rng.integers(0, 3, shape)
            else:
                feeds[info.name] = rng.standard_normal(shape).astype(np.float32)
        yield feeds


def bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
                yield from bodies(attribute.g)


@pytest.mark.parametrize("name", ROWS)
def test_the_output_computes_the_same_on_every_path(written: Written, name: str) -> None:
    onnx.checker.check_model(onnx.load(written.output(name)), full_check=True)
    for feeds in drawn(written.source(name)):
        expected = run(written.source(name), feeds, None, optimize=False)
        for library, optimize in ((written.library, False), (written.library, True), (None, False)):
            got = run(written.output(name), feeds, library, optimize=optimize)
            for a, b in zip(got, expected, strict=True):
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ROWS)
def test_kernels_are_in_the_bodies(written: Written, name: str) -> None:
    row = ROWS[name]
    nodes = [node for body in bodies(onnx.load(written.output(name)).graph) for node in body.node]
    assert sum(node.domain.startswith("korch.") for node in nodes) >= row.inside
    types = {node.op_type for node in nodes}
    assert row.left <= types
    assert not row.gone & types


@pytest.mark.parametrize("name", ROWS)
def test_signatures_stay(written: Written, name: str) -> None:
    before, after = onnx.load(written.source(name)).graph, onnx.load(written.output(name)).graph
    assert list(before.input) == list(after.input)
    for a, b in zip(before.output, after.output, strict=True):
        assert (a.name, a.type.tensor_type.elem_type) == (b.name, b.type.tensor_type.elem_type)
        for old, new in zip(a.type.tensor_type.shape.dim, b.type.tensor_type.shape.dim, strict=True):
            assert new == old or new.HasField("dim_value")
    kept = {body.name: body for body in bodies(after)}
    for body in bodies(before):
        if body.name in kept:
            assert list(body.input) == list(kept[body.name].input)
            assert list(body.output) == list(kept[body.name].output)
