"""Rows about branches, bodies of loops, and local functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper
from survival_row import Row, equal, error, floats, model, opaque, row


@row
def branches_that_capture() -> Row:
    text = """g (float[2,3] x, bool c) => (float[2,3] y) {
        h = Relu(x)
        z = If(c) <then_branch = a () => (float[2,3] t) { t = Neg(h) },
                  else_branch = b () => (float[2,3] e) { e = Add(h, w) }>
        y = Exp(z)
    }"""
    return Row(model(text, w=floats(2, 3, seed=1)), {"x": floats(2, 3), "c": np.array(False)}, opaque("If"))


def _hidden(variants: tuple[str, ...]) -> Row:
    """A branch has an initializer with the name of an outer one, and ONNX Runtime takes the outer one."""
    text = """g (float[2] x, bool c) => (float[2] y, float[2] z) {
        z = Add(x, w)
        a = If(c) <then_branch = a () => (float[2] t) { t = Mul(x, w) },
                  else_branch = b () => (float[2] e) { e = Mul(x, w) }>
        y = Neg(a)
    }"""
    proto = model(text, w=np.array([1, 2], np.float32))
    branch = proto.graph.node[1].attribute[0].g
    branch.initializer.append(numpy_helper.from_array(np.array([30, 40], np.float32), "w"))
    return Row(proto, {"x": floats(2), "c": np.array(True)}, opaque("If"), variants=variants)


@row
def a_branch_whose_initializer_hides_an_outer_one() -> Row:
    return _hidden(("as is", "symbolic"))


@row
def a_constant_branch_whose_initializer_hides_an_outer_one() -> Row:
    return _hidden(("frozen",))


@row
def a_branch_that_hides_an_intermediate_value() -> Row:
    # What korch computes around the branch may not take a name that the branch defines itself.
    text = """g (float[2] x, bool c) => (float[2] y) {
        h = Relu(x) s = Softplus(h)
        a = If(c) <then_branch = a () => (float[2] t) { u = Mul(s, s) t = Neg(u) },
                  else_branch = b () => (float[2] e) { u = Add(s, s) e = Neg(u) }>
        b = Softmax(a) y = Neg(b)
    }"""
    return Row(model(text), {"x": floats(2), "c": np.array(True)}, opaque("If"))


@row
def a_branch_that_is_an_outer_value() -> Row:
    text = """g (float[2] x, bool c) => (float[2] y) {
        h = Relu(x)
        a = If(c) <then_branch = a () => (float[2] t) { t = Identity(h) },
                  else_branch = b () => (float[2] e) { e = Identity(x) }>
        y = Neg(a)
    }"""
    return Row(model(text), {"x": floats(2), "c": np.array(True)}, opaque("If"))


@row
def a_branch_that_is_an_outer_value_itself() -> Row:
    # Neither onnx nor ONNX Runtime take such a graph.
    text = """g (float[2] x, bool c) => (float[2] y) {
        h = Relu(x)
        y = If(c) <then_branch = a () => (float[2] h) { }, else_branch = b () => (float[2] e) { e = Neg(h) }> }"""
    return Row(model(text), {}, error(3, "h"))


@row
def equal_branches_under_a_condition_that_is_computed() -> Row:
    text = """g (float[2] x) => (float[2] y) {
        s = ReduceSum <keepdims = 0> (x) c = Greater(s, zero) h = Exp(x)
        z = If(c) <then_branch = a () => (float[2] t) { p = Neg(h) t = Abs(p) },
                  else_branch = b () => (float[2] e) { p = Neg(h) e = Abs(p) }>
        y = Neg(z) }"""
    return Row(model(text, zero=np.float32(0)), {"x": floats(2)}, opaque("If"))


@row
def branches_without_operators() -> Row:
    text = """g (float[2] x, bool c) => (float[2] y) {
        z = If(c) <then_branch = a () => (float[2] t) { t = Constant <value_floats = [1.0, 2.0]> () },
                  else_branch = b () => (float[2] e) { e = Constant <value_floats = [3.0, 4.0]> () }>
        a = Mul(z, x) y = Neg(a) }"""
    return Row(model(text), {"x": floats(2), "c": np.array(False)}, opaque("If"))


@row
def a_loop_within_a_branch_within_a_loop() -> Row:
    text = """g (float[2] x, int64 n) => (float[2] y) {
        h = Exp(x) true = Constant <value = bool {1}> ()
        last = Loop(n, true, h) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t) {
            on = Identity(go) q = Greater(i, one)
            t = If(q) <then_branch = p () => (float[2] u) {
                u = Loop(two, true, s) <body = d (int64 j, bool k, float[2] v) => (bool l, float[2] w) {
                    l = Identity(k) a = Mul(v, h) w = Tanh(a) }> },
                       else_branch = r () => (float[2] e) { f = Add(s, x) e = Sigmoid(f) }> }>
        y = Neg(last) }"""
    feeds = {"x": floats(2), "n": np.array(4)}
    return Row(model(text, one=np.array(1), two=np.array(2)), feeds, opaque("Loop", "Loop", "If"))


@row
def a_loop_that_ends_itself() -> Row:
    text = """g (float x) => (float y, float[M] z) {
        h = Exp(x) true = Constant <value = bool {1}> ()
        last, all = Loop(, true, h) <body = b (int64 i, bool go, float s) => (bool on, float t, float o) {
            t = Mul(s, two) on = Less(t, limit) o = Neg(t) }>
        y = Neg(last) z = Abs(all) }"""
    proto = model(text, two=np.float32(2), limit=np.float32(50))
    return Row(proto, {"x": np.float32(0.5)}, opaque("Loop"))


@row
def a_scan_backwards_along_another_axis() -> Row:
    text = """g (float[2] x, float[2,4] q) => (float[2] y, float[2,4] z) {
        h = Exp(x)
        last, all = Scan <num_scan_inputs = 1, scan_input_axes = [1], scan_input_directions = [1],
            scan_output_axes = [1], scan_output_directions = [1],
            body = b (float[2] s, float[2] e) => (float[2] t, float[2] o) {
                p = Mul(s, e) t = Tanh(p) o = Sigmoid(t) }> (h, q)
        y = Neg(last) z = Abs(all) }"""
    return Row(model(text), {"x": floats(2), "q": floats(2, 4)}, opaque("Scan"))


@row
def branches_of_different_shapes() -> Row:
    text = """g (float[4] x, bool c) => (float[N] y) {
        h = Exp(x)
        a = If(c) <then_branch = a () => (float[4] t) { t = Neg(h) },
                  else_branch = b () => (float[2] e) { e = Slice(h, z, two) }>
        y = Neg(a)
    }"""
    weights: dict[str, Any] = {"z": np.array([0]), "two": np.array([2])}
    return Row(model(text, **weights), {"x": floats(4), "c": np.array(False)}, opaque("If"))


@row
def branches_within_branches() -> Row:
    text = """g (float[2] x, bool c, bool d) => (float[2] y) {
        h = Exp(x)
        a = If(c) <then_branch = a () => (float[2] t) {
                      k = Neg(h)
                      t = If(d) <then_branch = b () => (float[2] p) { p = Mul(h, k) },
                                 else_branch = q () => (float[2] r) { r = Add(h, x) }> },
                  else_branch = e () => (float[2] f) { f = Neg(h) }>
        y = Neg(a)
    }"""
    feeds = {"x": floats(2), "c": np.array(True), "d": np.array(False)}
    return Row(model(text), feeds, opaque("If", "If"))


_LOOP = """g (float[2] x, int64 n) => (float[2] y, float[M,2] z) {
    h = Exp(x) true = Constant <value = bool {1}> ()
    last, scan = Loop(n, true, h) <body = b (int64 i, bool go, float[2] s) => (bool on, float[2] t, float[2] o) {
        on = Identity(go) q = Mul(s, w) t = Add(q, h) o = Neg(t) }>
    y = Neg(last) z = Abs(scan)
}"""


@row
def a_loop_that_captures() -> Row:
    return Row(model(_LOOP, w=floats(2, seed=1)), {"x": floats(2), "n": np.array(3)}, opaque("Loop"))


@row
def a_loop_that_never_runs() -> Row:
    return Row(model(_LOOP, w=floats(2, seed=1)), {"x": floats(2), "n": np.array(0)}, opaque("Loop"))


@row
def a_loop_whose_state_grows() -> Row:
    text = """g (float[1] x, int64 n) => (float[M] y) {
        h = Exp(x) true = Constant <value = bool {1}> ()
        last = Loop(n, true, h) <body = b (int64 i, bool go, float[k] s) => (bool on, float[m] t) {
            on = Identity(go) t = Concat <axis = 0> (s, h) }>
        y = Neg(last)
    }"""
    return Row(model(text), {"x": floats(1), "n": np.array(3)}, opaque("Loop"))


@row
def a_scan_that_captures() -> Row:
    text = """g (float[2] x, float[4,2] q) => (float[2] y, float[4,2] z) {
        h = Exp(x)
        last, all = Scan <num_scan_inputs = 1, body = b (float[2] s, float[2] e) => (float[2] t, float[2] o) {
            p = Mul(s, h) t = Add(p, e) o = Sigmoid(t) }> (h, q)
        y = Neg(last) z = Abs(all)
    }"""
    return Row(model(text), {"x": floats(2), "q": floats(4, 2)}, opaque("Scan"))


def _with_function(text: str, *functions: str, opset: int = 17, **weights: Any) -> Any:
    return model(text, opset=opset, domains={"this": 1}, functions=functions, **weights)


@row
def a_local_function_with_constants() -> Row:
    function = """<domain: "this", opset_import: ["" : 17]> f (x) => (y) {
        c = Constant <value = double[2] {1.0, 2.0}> () k = Cast <to = 1> (c) y = Sub(x, k) }"""
    text = "g (float[2] x) => (float[2] y) { a = this.f(x) b = this.f(a) y = Relu(b) }"
    return Row(_with_function(text, function), {"x": floats(2)}, equal())


@row
def a_local_function_with_an_omitted_operand() -> Row:
    function = """<domain: "this", opset_import: ["" : 17]> f (x, s) => (y) {
        y = Resize <mode = "nearest"> (x, , s) }"""
    text = "g (float[1,1,2,2] x) => (float[1,1,4,4] y) { a = Relu(x) b = this.f(a, s) y = Neg(b) }"
    proto = _with_function(text, function, s=np.array([1, 1, 2, 2], np.float32))
    return Row(proto, {"x": floats(1, 1, 2, 2)}, equal())


@row
def a_local_function_called_without_its_last_operand() -> Row:
    function = """<domain: "this", opset_import: ["" : 17]> f (x, low, high) => (y) { y = Clip(x, low, high) }"""
    text = "g (float[4] x) => (float[4] y) { b = this.f(x, low) y = Neg(b) }"
    return Row(_with_function(text, function, low=np.float32(0)), {"x": floats(4)}, equal())


@row
def a_local_function_with_attributes() -> Row:
    function = """<domain: "this", opset_import: ["" : 17]> f <alpha: float = 0.5, axis> (x) => (y) {
        a = LeakyRelu <alpha: float = @alpha> (x) y = Softmax <axis: int = @axis> (a) }"""
    text = "g (float[2,3] x) => (float[2,3] y) { a = this.f <axis = 0> (x) y = this.f <axis = 1, alpha = 0.25> (a) }"
    return Row(_with_function(text, function), {"x": floats(2, 3)}, equal())


@row
def defaults_of_a_function_within_a_function_and_a_branch() -> Row:
    leaky = """<domain: "this", opset_import: ["" : 17]> leaky <alpha: float = 0.5> (x) => (y) {
        y = LeakyRelu <alpha: float = @alpha> (x) }"""
    outer = """<domain: "this", opset_import: ["" : 17, "this" : 1]> outer <beta: float = 0.125> (x) => (y) {
        a = this.leaky(x) y = this.leaky <alpha: float = @beta> (a) }"""
    text = """g (float[3] x, bool c) => (float[3] y) {
        h = this.outer(x)
        z = If(c) <then_branch = a () => (float[3] t) { t = this.leaky(h) },
                  else_branch = b () => (float[3] e) { e = this.outer <beta = 2.0> (h) }>
        y = Neg(z) }"""
    feeds = {"x": -np.abs(floats(3)), "c": np.array(True)}
    return Row(_with_function(text, outer, leaky), feeds, opaque("If"))


@row
def local_functions_that_call_each_other() -> Row:
    inner = '<domain: "this", opset_import: ["" : 17]> inner (x) => (y) { t = Exp(x) y = Neg(t) }'
    outer = '<domain: "this", opset_import: ["" : 17, "this" : 1]> outer (x) => (y) { t = this.inner(x) y = Abs(t) }'
    text = "g (float[3] x) => (float[3] y) { t = Relu(x) y = this.outer(t) }"
    return Row(_with_function(text, outer, inner), {"x": floats(3)}, equal())


@row
def a_local_function_that_calls_itself() -> Row:
    function = '<domain: "this", opset_import: ["" : 17, "this" : 1]> f (x) => (y) { t = Exp(x) y = this.f(t) }'
    text = "g (float[3] x) => (float[3] y) { y = this.f(x) }"
    return Row(_with_function(text, function), {}, error(3, "call themselves", "f"))


@row
def a_local_function_of_another_opset() -> Row:
    function = '<domain: "this", opset_import: ["" : 12]> f (x) => (y) { y = Softmax(x) }'
    text = "g (float[2,3,4] x) => (float[2,3,4] y) { a = Relu(x) b = this.f(a) y = Neg(b) }"
    # onnx does not infer through it, so that what follows stays too.
    return Row(_with_function(text, function), {"x": floats(2, 3, 4)}, opaque("f"))


@row
def a_local_function_with_a_branch() -> Row:
    function = """<domain: "this", opset_import: ["" : 17]> f (x, c) => (y) {
        h = Exp(x)
        y = If(c) <then_branch = a () => (float[2] t) { t = Neg(h) },
                   else_branch = b () => (float[2] e) { e = Abs(h) }> }"""
    text = "g (float[2] x, bool c) => (float[2] y) { h = Relu(x) b = this.f(h, c) y = this.f(b, c) }"
    return Row(_with_function(text, function), {"x": floats(2), "c": np.array(True)}, opaque("If", "If"))


@row
def a_local_function_named_like_an_operator() -> Row:
    function = '<domain: "this", opset_import: ["" : 17]> Relu (x) => (y) { y = Neg(x) }'
    text = "g (float[3] x) => (float[3] y) { a = this.Relu(x) y = Relu(a) }"
    return Row(_with_function(text, function), {"x": floats(3)}, equal())
