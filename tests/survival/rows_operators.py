"""Rows about attributes that change what an operator means, and about what changed between opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
from survival_row import Row, chain, equal, floats, integers, model, opaque, row


def _resize(attributes: str, inputs: str, size: tuple[int, int], opset: int = 13, **weights: Any) -> Row:
    op = f"Resize <{attributes}> (a, {inputs})"
    return chain(op, floats(1, 2, 3, 4), f"1,2,{size[0]},{size[1]}", opset=opset, **weights)


_TWICE: dict[str, Any] = {"s": np.array([1, 1, 2, 2], np.float32)}


@row
def resize_by_scales_to_the_nearest() -> Row:
    return _resize('mode = "nearest"', ", s", (6, 8), **_TWICE)


@row
def resize_by_sizes_alone() -> Row:
    return _resize('mode = "linear"', ", , n", (5, 9), n=np.array([1, 2, 5, 9]))


@row
def resize_with_empty_scales() -> Row:
    weights: dict[str, Any] = {
        "roi": np.zeros(0, np.float32),
        "s": np.zeros(0, np.float32),
        "n": np.array([1, 2, 5, 9]),
    }
    return _resize('mode = "linear"', "roi, s, n", (5, 9), opset=11, **weights)


@row
def resize_with_aligned_corners() -> Row:
    attributes = 'mode = "linear", coordinate_transformation_mode = "align_corners"'
    return _resize(attributes, ", , n", (7, 8), n=np.array([1, 2, 7, 8]))


@row
def resize_to_one_pixel() -> Row:
    attributes = 'mode = "linear", coordinate_transformation_mode = "pytorch_half_pixel"'
    return _resize(attributes, ", , n", (1, 1), n=np.array([1, 2, 1, 1]))


@row
def resize_to_one_pixel_with_aligned_corners() -> Row:
    attributes = 'mode = "nearest", coordinate_transformation_mode = "align_corners"'
    return _resize(attributes, ", , n", (1, 1), n=np.array([1, 2, 1, 1]))


@row
def resize_asymmetrically_with_every_rounding() -> Row:
    how = 'mode = "nearest", coordinate_transformation_mode = "asymmetric"'
    calls = " ".join(
        f'y{i} = Resize <{how}, nearest_mode = "{mode}"> (a,,s)'
        for i, mode in enumerate(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    )
    outputs = ", ".join(f"float[1,1,5,6] y{i}" for i in range(4))
    text = f"g (float[1,1,2,4] x) => ({outputs}) {{ a = Neg(x) {calls} }}"
    proto = model(text, opset=13, s=np.array([1, 1, 2.5, 1.5], np.float32))
    return Row(proto, {"x": floats(1, 1, 2, 4)}, equal())


@row
def resize_by_cubes_without_what_is_outside() -> Row:
    return _resize('mode = "cubic", exclude_outside = 1, cubic_coeff_a = -0.5', ", s", (6, 8), **_TWICE)


@row
def resize_with_antialiasing() -> Row:
    return _resize('mode = "linear", antialias = 1', ", , n", (2, 2), opset=18, n=np.array([1, 2, 2, 2]))


@row
def resize_some_axes_only() -> Row:
    return _resize('mode = "linear", axes = [3]', ", , n", (3, 7), opset=18, n=np.array([7]))


@row
def resize_and_keep_the_ratio() -> Row:
    attributes = 'mode = "linear", keep_aspect_ratio_policy = "not_larger", axes = [2, 3]'
    return _resize(attributes, ", , n", (6, 8), opset=18, n=np.array([8, 8]))


@row
def resize_of_opset_10() -> Row:
    return chain("Resize(a, s)", floats(1, 1, 2, 3), "1,1,4,6", opset=10, ir=5, **_TWICE)


@row
def upsample_of_opset_7() -> Row:
    return chain("Upsample <scales = [1.0, 1.0, 2.0, 3.0]> (a)", floats(1, 1, 2, 3), "1,1,4,9", opset=7, ir=3)


@row
def upsample_of_opset_9_linearly() -> Row:
    return chain('Upsample <mode = "linear"> (a, s)', floats(1, 1, 2, 3), "1,1,4,6", opset=9, ir=4, **_TWICE)


def _dropout(call: str, mask: str, opset: int, ir: int = 8, **weights: Any) -> Row:
    text = f"g (float[6] x) => (float[6] y, {mask}[6] m) {{ a = Exp(x) b, m = {call} y = Neg(b) }}"
    return Row(model(text, opset=opset, ir=ir, **weights), {"x": floats(6)}, equal())


@row
def dropout_of_opset_10_whose_mask_is_used() -> Row:
    return _dropout("Dropout <ratio = 0.5> (a)", "bool", 10, ir=5)


@row
def dropout_of_opset_7_whose_mask_is_used() -> Row:
    return _dropout("Dropout <ratio = 0.5> (a)", "float", 7, ir=3)


@row
def dropout_of_opset_12_whose_mask_is_used() -> Row:
    return _dropout("Dropout(a, ratio)", "bool", 12, ratio=np.float32(0.5))


@row
def dropout_whose_mask_nobody_uses() -> Row:
    return chain("Dropout(a, ratio)", floats(6), "6", opset=13, ratio=np.float32(0.3))


@row
def dropout_told_from_outside_whether_to_train() -> Row:
    text = "g (float[6] x, bool t) => (float[6] y) { a = Exp(x) b = Dropout(a, ratio, t) y = Neg(b) }"
    feeds = {"x": floats(6), "t": np.array(False)}
    return Row(model(text, ratio=np.float32(0.5)), feeds, equal())


@row
def group_normalization_of_opset_18() -> Row:
    weights: dict[str, Any] = {"s": floats(2), "b": floats(2, seed=1)}
    return chain("GroupNormalization <num_groups = 2> (a, s, b)", floats(2, 4, 3), "2,4,3", opset=18, **weights)


@row
def group_normalization_of_opset_21() -> Row:
    weights: dict[str, Any] = {"s": floats(4), "b": floats(4, seed=1)}
    return chain("GroupNormalization <num_groups = 2> (a, s, b)", floats(2, 4, 3), "2,4,3", opset=21, ir=10, **weights)


@row
def layer_normalization_with_all_outputs() -> Row:
    text = """g (float[2,3,4] x) => (float[2,3,4] y, float[2,3,1] m, float[2,3,1] d) {
        a = Neg(x) y, m, d = LayerNormalization <axis = -1> (a, s) }"""
    return Row(model(text, s=floats(4)), {"x": floats(2, 3, 4)}, equal())


@row
def a_written_out_layer_normalization_that_drops_its_axis() -> Row:
    # On a square matrix the statistics of rows meet the columns; that is what the model says.
    text = """g (float[4,4] x) => (float[4,4] y) {
        m = ReduceMean <axes = [-1], keepdims = 0> (x) d = Sub(x, m) q = Mul(d, d)
        v = ReduceMean <axes = [-1], keepdims = 0> (q) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) w = Mul(n, s)
        y = Add(w, b) }"""
    weights: dict[str, Any] = {"eps": np.float32(1e-5), "s": floats(4), "b": floats(4, seed=1)}
    return Row(model(text, **weights), {"x": floats(4, 4)}, equal())


@row
def a_written_out_layer_normalization_that_grows() -> Row:
    text = """g (float[1,1] x) => (float[1,2] y) {
        m = ReduceMean <axes = [-1]> (x) d = Sub(x, m) q = Mul(d, d) v = ReduceMean <axes = [-1]> (q)
        e = Add(v, eps) r = Sqrt(e) n = Div(d, r) w = Mul(n, s) y = Add(w, b) }"""
    weights: dict[str, Any] = {"eps": np.float32(1e-5), "s": floats(2), "b": floats(2, seed=1)}
    return Row(model(text, **weights), {"x": floats(1, 1)}, equal())


@row
def the_place_of_the_largest() -> Row:
    text = """g (float[2,5] x) => (int64[2,1] y, int64[2] z) {
        a = Neg(x) y = ArgMax <axis = 1, select_last_index = 1> (a) z = ArgMin <axis = 1, keepdims = 0> (a) }"""
    x = np.array([[1, 3, 3, 0, 3], [2, 2, 2, 2, 2]], np.float32)
    return Row(model(text), {"x": x}, equal())


@row
def reduction_over_no_axis() -> Row:
    text = """g (float[2,3] x) => (float[2,3] y, float[1,1] z) {
        a = Neg(x) y = ReduceSum <noop_with_empty_axes = 1> (a, none) z = ReduceSum(a, none) }"""
    return Row(model(text, none=np.zeros(0, np.int64)), {"x": floats(2, 3)}, equal())


@row
def reduction_over_axes_that_come_from_outside() -> Row:
    text = "g (float[2,3] x, int64[1] axes) => (float[2,3] y) { a = Neg(x) s = ReduceSum(a, axes) y = Div(a, s) }"
    return Row(model(text), {"x": floats(2, 3), "axes": np.array([-1])}, equal())


@row
def padding_that_takes_away() -> Row:
    return chain("Pad(a, p)", floats(4, 5), "4,5", opset=13, p=np.array([-1, 2, 1, -2]))


@row
def padding_with_a_number_and_by_reflection() -> Row:
    text = """g (float[4,5] x) => (float[7,5] y, float[8,9] z, float[5,6] e) {
        a = Neg(x) y = Pad(a, p, c) z = Pad <mode = "reflect"> (a, q) e = Pad <mode = "edge"> (a, r) }"""
    weights: dict[str, Any] = {
        "p": np.array([1, 0, 2, 0]),
        "q": np.array([2, 2, 2, 2]),
        "r": np.array([1, 0, 0, 1]),
        "c": np.float32(7),
    }
    return Row(model(text, **weights), {"x": floats(4, 5)}, equal())


@row
def padding_around() -> Row:
    return chain('Pad <mode = "wrap"> (a, p)', floats(4, 5), "7,8", opset=19, ir=9, p=np.array([2, 1, 1, 2]))


@row
def slices_backwards_and_beyond() -> Row:
    weights: dict[str, Any] = {
        "s": np.array([-1, 1]),
        "e": np.array([-(2**63), 2**63 - 1]),
        "x0": np.array([0, 1]),
        "t": np.array([-2, 3]),
    }
    return chain("Slice(a, s, e, x0, t)", floats(5, 8), "3,3", **weights)


@row
def gathering_with_negative_indices() -> Row:
    text = """g (float[5,3] x) => (float[2,2,3] y, float[1] z, float s) {
        a = Neg(x) y = Gather(a, i) z = GatherND(a, j) b = Gather(z, zero) s = Exp(b) }"""
    weights: dict[str, Any] = {
        "i": np.array([[-1, 0], [2, -5]], np.int32),
        "j": np.array([[4, -1]]),
        "zero": np.array(-1),
    }
    return Row(model(text, **weights), {"x": floats(5, 3)}, equal())


@row
def sums_along_the_way_backwards_and_exclusive() -> Row:
    return chain("CumSum <exclusive = 1, reverse = 1> (a, axis)", floats(3, 4), "3,4", axis=np.array(1))


@row
def triangles() -> Row:
    text = """g (float[2,3,4] x) => (float[2,3,4] y, float[2,3,4] z) {
        a = Neg(x) y = Trilu <upper = 0> (a, k) z = Trilu(a, m) }"""
    return Row(model(text, k=np.array(-1), m=np.array(2)), {"x": floats(2, 3, 4)}, equal())


@row
def channels_into_space_both_ways() -> Row:
    text = """g (float[1,8,2,3] x) => (float[1,2,4,6] y, float[1,2,4,6] z, float[1,32,1,1] s) {
        a = Neg(x) y = DepthToSpace <blocksize = 2, mode = "CRD"> (a) z = DepthToSpace <blocksize = 2> (a)
        c = Slice(a, b, e, w) s = SpaceToDepth <blocksize = 2> (c) }"""
    weights: dict[str, Any] = {"b": np.array([0]), "e": np.array([2]), "w": np.array([3])}
    return Row(model(text, **weights), {"x": floats(1, 8, 2, 3)}, equal())


@row
def products_of_every_rank() -> Row:
    text = """g (float[3] v, float[3,3] m, float[2,1,3,3] t)
        => (float p, float[3] q, float[2,1,3] r, float[2,1,3,3] s) {
        a = Neg(v) p = MatMul(a, v) q = MatMul(m, a) r = MatMul(a, t) s = MatMul(t, m) }"""
    feeds = {"v": floats(3), "m": floats(3, 3), "t": floats(2, 1, 3, 3)}
    return Row(model(text), feeds, equal(), data=("v", "m", "t"))


@row
def a_product_with_factors_and_transposes() -> Row:
    text = """g (float[4,2] x) => (float[2,3] y) {
        a = Neg(x) b = Gemm <alpha = 0.5, beta = 2.0, transA = 1, transB = 1> (a, w, c) y = Exp(b) }"""
    return Row(model(text, w=floats(3, 4), c=floats(1, 3)), {"x": floats(4, 2)}, equal())


@row
def einstein_sums() -> Row:
    text = """g (float[2,3,4] x, float[2,4,5] z) => (float[2,3,5] y, float[4,3] d, float s) {
        a = Neg(x) y = Einsum <equation = "bij,bjk->bik"> (a, z) d = Einsum <equation = "bij->ji"> (a)
        s = Einsum <equation = "bij,bij->"> (a, x) }"""
    feeds = {"x": floats(2, 3, 4), "z": floats(2, 4, 5)}
    return Row(model(text), feeds, equal(), data=("x", "z"))


@row
def a_transposed_convolution_with_everything() -> Row:
    shape = "strides = [2,2], pads = [1,0,0,1], output_padding = [1,1], group = 2, dilations = [1,2]"
    return chain(
        f"ConvTranspose <{shape}> (a, w, b)", floats(1, 4, 3, 3), "1,6,7,9", w=floats(4, 3, 3, 3) / 5, b=floats(6)
    )


@row
def a_convolution_padded_like_its_input() -> Row:
    op = 'Conv <auto_pad = "SAME_LOWER", strides = [2,2], kernel_shape = [3,3]> (a, w)'
    return chain(op, floats(1, 2, 6, 5), "1,3,3,3", w=floats(3, 2, 3, 3))


@row
def slopes_for_each_channel() -> Row:
    return chain("PRelu(a, s)", floats(2, 3, 4), "2,3,4", s=floats(3, 1))


@row
def an_opset_from_before_broadcasting() -> Row:
    # Kernels cannot be said with operators of this age, so that the model stays.
    text = "g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Sigmoid(a) y = Neg(b) }"
    return Row(model(text, opset=6, ir=3), {"x": floats(2, 3)}, opaque("Relu", "Sigmoid", "Neg", around=False))


@row
def numbers_of_classes_as_vectors() -> Row:
    text = "g (int64[4] x) => (float[4,3] y) { a = Neg(x) b = OneHot <axis = -1> (a, depth, values) y = Neg(b) }"
    weights: dict[str, Any] = {"depth": np.array(3), "values": np.array([0.5, 2], np.float32)}
    return Row(model(text, **weights), {"x": np.array([0, -1, -5, 2])}, equal())


@row
def attention_with_masks_and_heads() -> Row:
    text = """g (float[1,2,4,8] q, float[1,2,4,8] k, float[1,2,4,8] v, bool[4,4] m) => (float[1,2,4,8] y) {
        a = Neg(q) b = Attention(a, k, v, m) y = Neg(b) }"""
    mask = np.tril(np.ones((4, 4), bool))
    feeds = {n: floats(1, 2, 4, 8, seed=i) for i, n in enumerate("qkv")} | {"m": mask}
    return Row(model(text, opset=23, ir=11), feeds, equal(), data=("q", "k", "v"))


@row
def integers_that_are_shifted_and_combined() -> Row:
    text = """g (uint8[5] x, uint8[5] z) => (uint8[5] y, uint8[5] w, uint8[5] n) {
        y = BitShift <direction = "LEFT"> (x, z) w = BitwiseXor(x, z) a = BitwiseAnd(x, w) n = BitwiseNot(a) }"""
    feeds = {"x": np.array([1, 255, 7, 128, 3], np.uint8), "z": np.array([0, 1, 7, 3, 2], np.uint8)}
    return Row(model(text, opset=18), feeds, equal(), data=("x", "z"), fused_in=())


@row
def counts_that_are_ranges() -> Row:
    text = """g (float[3,4] x) => (float[4] y) {
        s = Shape(x) n = Gather(s, one) r = Range(zero, n, one) f = Cast <to = 1> (r)
        m = ReduceMean <axes = [0], keepdims = 0> (x)
        y = Add(m, f) }"""
    return Row(model(text, one=np.array(1), zero=np.array(0)), {"x": floats(3, 4)}, equal())


@row
def random_rows_of_integers_that_are_compared() -> Row:
    text = """g (int32[7] x, int32[7] z) => (bool[7] y, int32[7] w) {
        a = Max(x, z) b = Min(x, z) y = Equal(a, b) w = Sub(a, b) }"""
    feeds = {"x": integers(7, dtype=np.int32), "z": integers(7, seed=1, dtype=np.int32)}
    return Row(model(text), feeds, equal(), data=("x", "z"))
