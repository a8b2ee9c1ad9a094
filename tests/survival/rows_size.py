"""Rows about graphs that are large in some way, and about weights that are shared or would grow."""

from __future__ import annotations

from typing import Any

import numpy as np
from survival_row import Row, equal, floats, model, opaque, row


@row
def a_chain_of_three_hundred_nodes() -> Row:
    steps = ("Neg", "Tanh", "Abs", "Sqrt", "Sigmoid")
    nodes = " ".join(f"t{i + 1} = {steps[i % len(steps)]}(t{i})" for i in range(300))
    return Row(
        model(f"g (float[8] t0) => (float[8] t300) {{ {nodes} }}"), {"t0": floats(8)}, equal(), variants=("as is",)
    )


@row
def a_chain_of_a_hundred_unknown_nodes() -> Row:
    nodes = " ".join(f"t{i + 1} = Det(u{i}) u{i + 1} = Expand(t{i + 1}, s)" for i in range(100))
    text = f"g (float[2,2] u0) => (float[2,2] u100) {{ {nodes} }}"
    return Row(model(text, s=np.array([2, 2])), {"u0": np.zeros((2, 2), np.float32)}, opaque(*["Det"] * 100))


@row
def a_value_with_nine_readers() -> Row:
    nodes = " ".join(f"a{i} = Mul(h, k{i % 7})" for i in range(9))
    names = ", ".join(f"a{i}" for i in range(9))
    weights: dict[str, Any] = {f"k{i}": np.float32(i - 3) for i in range(7)}
    text = f"g (float[4] x) => (float[4] y) {{ h = Exp(x) {nodes} s = Sum({names}) y = Tanh(s) }}"
    return Row(model(text, **weights), {"x": floats(4)}, equal(), variants=("as is",))


@row
def a_node_with_a_hundred_inputs() -> Row:
    signature = ", ".join(f"float[2] x{i}" for i in range(100))
    names = ", ".join(f"x{i}" for i in range(100))
    nodes = f"c = Concat <axis = 0> ({names}) y = Neg(c) s = Max({names})"
    text = f"g ({signature}) => (float[200] y, float[2] s) {{ {nodes} }}"
    feeds = {f"x{i}": floats(2, seed=i) for i in range(100)}
    return Row(model(text), feeds, equal(), data=tuple(feeds))


@row
def twelve_outputs() -> Row:
    signature = ", ".join(f"float[3] y{i}" for i in range(12))
    nodes = " ".join(f"y{i} = Add(h, k{i})" for i in range(12))
    weights: dict[str, Any] = {f"k{i}": np.float32(i) for i in range(12)}
    return Row(
        model(f"g (float[3] x) => ({signature}) {{ h = Exp(x) {nodes} }}", **weights),
        {"x": floats(3)},
        equal(),
        variants=("as is",),
    )


@row
def diamonds_in_a_row() -> Row:
    nodes = " ".join(f"a{i} = Tanh(t{i}) b{i} = Sigmoid(t{i}) t{i + 1} = Mul(a{i}, b{i})" for i in range(40))
    return Row(model(f"g (float[5] t0) => (float[5] t40) {{ {nodes} }}"), {"t0": floats(5)}, equal())


@row
def a_grid_in_which_all_depend_on_all() -> Row:
    nodes = []
    for layer in range(2):
        for i in range(3):
            operands = ", ".join(f"t{layer}_{j}" for j in range(3))
            nodes.append(f"s{layer}_{i} = Sum({operands}) t{layer + 1}_{i} = Mul(s{layer}_{i}, k{i})")
    start = " ".join(f"t0_{i} = Mul(x, k{i})" for i in range(3))
    weights: dict[str, Any] = {f"k{i}": np.float32(0.1 * (i - 2)) for i in range(3)}
    text = f"g (float[3] x) => (float[3] y) {{ {start} {' '.join(nodes)} y = Neg(t2_2) }}"
    return Row(model(text, **weights), {"x": floats(3)}, equal(), variants=("as is",))


@row
def a_constant_that_would_be_large_if_it_were_folded() -> Row:
    text = """g (float[3,1] x) => (float[3,1] y) {
        c = ConstantOfShape(s) m = ReduceMax <axes = [0,1]> (c) a = Add(x, m) y = Neg(a) }"""
    return Row(model(text, s=np.array([2048, 2048])), {"x": floats(3, 1)}, equal())


@row
def a_tile_that_would_be_large_if_it_were_folded() -> Row:
    text = """g (float[64] x) => (float[1] y) {
        t = Tile(w, n) a = Mul(x, x) s = ReduceSum(a) m = ReduceMax <axes = [0]> (t) y = Add(s, m) }"""
    return Row(model(text, w=floats(64), n=np.array([50_000])), {"x": floats(64)}, equal())


@row
def a_weight_that_is_read_straight_and_transposed() -> Row:
    text = """g (float[2,64] x) => (float[2,64] y, float[2,64] z) {
        t = Transpose(w) p = MatMul(x, w) q = MatMul(x, t) y = Tanh(p) z = Tanh(q) }"""
    return Row(model(text, w=floats(64, 64) / 8), {"x": floats(2, 64)}, equal())


@row
def one_weight_under_two_names() -> Row:
    text = "g (float[3] x) => (float[3] y) { i = Identity(w) a = Mul(x, w) b = Add(a, i) c = Sub(b, v) y = Tanh(c) }"
    return Row(model(text, w=floats(3), v=floats(3)), {"x": floats(3)}, equal())


@row
def equal_layers_that_share_a_kernel() -> Row:
    layers = " ".join(
        f"m{i} = MatMul(t{i}, w{i}) b{i} = Add(m{i}, c{i}) s{i} = Sigmoid(b{i}) t{i + 1} = Mul(b{i}, s{i})"
        for i in range(6)
    )
    weights: dict[str, Any] = {f"w{i}": floats(8, 8, seed=i) / 3 for i in range(6)} | {
        f"c{i}": floats(8, seed=i) for i in range(6)
    }
    return Row(model(f"g (float[2,8] t0) => (float[2,8] t6) {{ {layers} }}", **weights), {"t0": floats(2, 8)}, equal())


@row
def extents_that_differ_in_every_way() -> Row:
    text = """g (float[1,7,1] x, float[5,1,3] z, float[3] v) => (float[5,7,3] y, float[5,1,1] m) {
        a = Add(x, z) b = Mul(a, v) y = Tanh(b) m = ReduceMax <axes = [1, 2]> (y) }"""
    feeds = {"x": floats(1, 7, 1), "z": floats(5, 1, 3), "v": floats(3)}
    return Row(model(text), feeds, equal(), data=("x", "z"))


@row
def a_large_tensor_and_many_threads() -> Row:
    text = (
        "g (float[64,4096] x) => (float[64,4096] y, float[64,1] s) { a = Exp(x) s = ReduceSum(a, one) y = Div(a, s) }"
    )
    return Row(model(text, one=np.array([1])), {"x": floats(64, 4096)}, equal())
