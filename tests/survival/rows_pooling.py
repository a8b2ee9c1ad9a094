"""Rows about pooling: which windows there are, what lies under them, and where runtimes and onnx disagree."""

from __future__ import annotations

from survival_row import Row, chain, equal, floats, model, row


@row
def pooling_that_says_where_the_largest_was() -> Row:
    text = """g (float[1,2,4,4] x) => (float[1,2,2,2] y, int64[1,2,2,2] i) {
        a = Neg(x) b, i = MaxPool <kernel_shape = [2,2], strides = [2,2], storage_order = 1> (a) y = Neg(b) }"""
    return Row(model(text), {"x": floats(1, 2, 4, 4)}, equal())


@row
def largest_pixels_at_the_rim() -> Row:
    op = "MaxPool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,0,0], ceil_mode = 1, dilations = [1,2]> (a)"
    return chain(op, floats(1, 2, 6, 7), "1,2,3,3", opset=12)


def _pads_itself(op: str, mode: str, *, ceil_mode: int) -> Row:
    """The stated extents are those that onnx infers; ONNX Runtime makes fewer windows."""
    text = f"""g (float[1,2,7,9] x) => (float[1,2,h,w] y) <float[1,2,7,9] c, float[1,2,7,9] d> {{
        a = Neg(x) b = Relu(a)
        c = {op} <kernel_shape = [3,2], dilations = [2,1], auto_pad = "{mode}", ceil_mode = {ceil_mode}> (b)
        d = Neg(c) e = Exp(d) y = Mul(e, d) }}"""
    return Row(model(text, opset=19), {"x": floats(1, 2, 7, 9)}, equal())


@row
def largest_in_dilated_windows_that_pad_themselves() -> Row:
    return _pads_itself("MaxPool", "SAME_UPPER", ceil_mode=0)


@row
def average_in_dilated_windows_that_pad_themselves() -> Row:
    return _pads_itself("AveragePool", "SAME_LOWER", ceil_mode=1)


@row
def norm_of_dilated_windows_that_pad_themselves() -> Row:
    return _pads_itself("LpPool", "SAME_LOWER", ceil_mode=0)


@row
def average_with_and_without_the_rim() -> Row:
    text = """g (float[1,1,5,5] x) => (float[1,1,3,3] y, float[1,1,3,3] z) {
        a = Neg(x) y = AveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1], count_include_pad = 1> (a)
        z = AveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]> (a) }"""
    return Row(model(text), {"x": floats(1, 1, 5, 5)}, equal())


@row
def average_over_a_rim_that_is_only_half_there() -> Row:
    op = "AveragePool <kernel_shape = [2,2], strides = [2,2], ceil_mode = 1> (a)"
    return chain(op, floats(1, 1, 5, 5), "1,1,3,3", opset=11)
