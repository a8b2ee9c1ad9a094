"""Rows about the structure of graphs."""

from __future__ import annotations

import numpy as np
from survival_row import Row, equal, error, floats, model, opaque, row


@row
def branches_that_capture() -> Row:
    text = """g (float[2,3] x, bool c) => (float[2,3] y) {
        h = Relu(x)
        z = If(c) <then_branch = a () => (float[2,3] t) { t = Neg(h) },
                  else_branch = b () => (float[2,3] e) { e = Identity(h) }>
        y = Exp(z)
    }"""
    return Row(model(text), {"x": floats(2, 3), "c": np.array(True)}, opaque("If"))


@row
def unsorted_nodes() -> Row:
    return Row(model("g (float[3] x) => (float[3] y) { y = Add(r, x) r = Relu(x) }"), {"x": floats(3)}, equal())


@row
def two_nodes_write_one_tensor() -> Row:
    text = "g (float[3] x) => (float[3] r) { r = Relu(x) r = Neg(x) }"
    return Row(model(text), {"x": floats(3)}, error(3, "'r' is defined twice", "Relu", "Neg"))
