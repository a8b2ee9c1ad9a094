"""Rows about the structure of graphs: names, order, outputs, initializers, documentation."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from survival_row import Row, equal, error, floats, model, opaque, row

_CONV_BN = """g (float[1,3,8,8] x, float[4,3,3,3] w, float[4] s, float[4] b, float[4] m, float[4] v)
    => (float[1,4,8,8] y) {
    c = Conv <pads = [1,1,1,1]> (x, w)
    n = BatchNormalization (c, s, b, m, v)
    y = Relu(n)
}"""


def _conv_weights() -> dict[str, Any]:
    return {
        "w": floats(4, 3, 3, 3),
        "s": floats(4),
        "b": floats(4, seed=1),
        "m": floats(4, seed=2),
        "v": np.abs(floats(4, seed=3)) + 0.5,
    }


@row
def weights_that_are_inputs_before_ir_4() -> Row:
    proto = model(_CONV_BN, opset=9, ir=3, **_conv_weights())
    return Row(proto, {"x": floats(1, 3, 8, 8)}, equal())


@row
def weights_that_a_caller_may_replace() -> Row:
    proto = model(_CONV_BN, **_conv_weights())
    feeds = {"x": floats(1, 3, 8, 8), "s": floats(4, seed=9)}
    return Row(proto, feeds, equal(), variants=("as is", "symbolic"))


@row
def defaults_that_nobody_replaces() -> Row:
    return Row(model(_CONV_BN, **_conv_weights()), {"x": floats(1, 3, 8, 8)}, equal(), variants=("as is",))


@row
def a_default_that_decides_a_shape() -> Row:
    text = "g (float[2,6] x, int64[2] s) => (float[N,M] y) { r = Reshape(x, s) y = Relu(r) }"
    feeds = {"x": floats(2, 6), "s": np.array([3, 4])}
    return Row(model(text, s=np.array([4, 3])), feeds, opaque("Reshape", around=False), variants=("as is",))


@row
def heads_with_equal_constant_shapes() -> Row:
    heads = " ".join(
        f"c{i} = Conv <pads = [1,1,1,1]> (r, w) n{i} = BatchNormalization (c{i}, s, b, m, v) y{i} = Reshape(n{i}, t{i})"
        for i in range(3)
    )
    outputs = ", ".join(f"float[1,4,N] y{i}" for i in range(3))
    text = f"g (float[1,3,H,W] x) => ({outputs}) {{ r = Relu(x) {heads} }}"
    shapes: dict[str, Any] = {f"t{i}": np.array([1, 4, -1]) for i in range(3)}
    proto = model(text, **_conv_weights(), **shapes)
    return Row(proto, {"x": floats(1, 3, 6, 5)}, equal())


@row
def unsorted_nodes() -> Row:
    return Row(model("g (float[3] x) => (float[3] y) { y = Add(r, x) r = Relu(x) }"), {"x": floats(3)}, equal())


@row
def nodes_in_reverse() -> Row:
    text = "g (float[4] x) => (float[4] y) { y = Exp(d) d = Sub(c, b) c = Mul(a, b) b = Abs(x) a = Neg(x) }"
    return Row(model(text), {"x": floats(4)}, equal())


@row
def unsorted_nodes_in_a_branch() -> Row:
    text = """g (float[3] x, bool c) => (float[3] y) {
        y = Neg(z)
        z = If(c) <then_branch = a () => (float[3] t) { t = Add(u, x) u = Relu(h) },
                  else_branch = b () => (float[3] e) { e = Neg(h) }>
        h = Abs(x)
    }"""
    x = floats(3)
    # ONNX Runtime sorts a graph, but not a branch.
    right = -(np.maximum(np.abs(x), 0) + x)
    return Row(model(text), {"x": x, "c": np.array(True)}, opaque("If"), instead={"y": right})


@row
def a_loop_of_two_nodes() -> Row:
    text = "g (float[3] x) => (float[3] y) { y = Add(x, z) z = Relu(y) }"
    return Row(model(text), {}, error(3, "loop", "Add"))


@row
def a_node_that_reads_itself() -> Row:
    return Row(model("g (float[3] x) => (float[3] y) { y = Add(x, y) }"), {}, error(3, "loop", "Add", "'y'"))


@row
def a_loop_in_a_branch() -> Row:
    text = """g (float[3] x, bool c) => (float[3] y) {
        y = If(c) <then_branch = a () => (float[3] t) { t = Add(u, x) u = Relu(t) },
                  else_branch = b () => (float[3] e) { e = Neg(x) }>
    }"""
    return Row(model(text), {}, error(3, "loop"))


@row
def two_nodes_write_one_tensor() -> Row:
    text = "g (float[3] x) => (float[3] r) { r = Relu(x) r = Neg(x) }"
    return Row(model(text), {"x": floats(3)}, error(3, "'r' is defined twice", "Relu", "Neg"))


@row
def a_node_writes_an_input() -> Row:
    return Row(model("g (float[3] x) => (float[3] x) { x = Relu(x) }"), {}, error(3, "'x' is defined twice"))


@row
def a_node_writes_an_initializer() -> Row:
    text = "g (float[3] x) => (float[3] w) { w = Add(x, w) }"
    return Row(model(text, w=floats(3)), {}, error(3, "'w' is defined twice", "Add"))


@row
def a_tensor_that_nobody_defines() -> Row:
    text = "g (float[3] x) => (float[3] y) { y = Add(x, nowhere) }"
    return Row(model(text), {}, error(3, "'nowhere'", "Add"))


@row
def an_output_that_nobody_defines() -> Row:
    return Row(model("g (float[3] x) => (float[3] z) { y = Relu(x) }"), {}, error(3, "'z'"))


@row
def nodes_of_one_name() -> Row:
    proto = model("g (float[2,2] x) => (float y) { a = Relu(x) d = Det(a) e = Det(x) y = Add(d, e) }")
    for node in proto.graph.node:
        node.name = "n"
    x = floats(2, 2)
    # ONNX Runtime refuses names that repeat, and onnx does not mind them.
    total = np.float32(np.linalg.det(np.maximum(x, 0)) + np.linalg.det(x))
    return Row(proto, {"x": x}, opaque("Det", "Det"), instead={"y": total})


@row
def names_with_anything_in_them() -> Row:
    proto = model("g (float[3] x) => (float[3] y) { a = Relu(x) d = Identity(a) y = Neg(d) }")
    odd = ['*/ #error "x" /*', "a\nb\\", "naïve ☃/:0", "%s{}{0}"]
    names = dict(zip(["x", "a", "d", "y"], odd, strict=True))
    for node in proto.graph.node:
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
        node.name = f"{odd[0]} {node.op_type}"
    proto.graph.input[0].name, proto.graph.output[0].name = odd[0], odd[3]
    return Row(proto, {odd[0]: floats(3)}, equal(), variants=("as is",))


@row
def names_that_korch_would_give() -> Row:
    text = (
        "g (float[3] x) => (float[3] y, float[3] z) { a = Relu(x) b = Sigmoid(a) c = Softmax(b) y = Neg(c) z = Exp(a) }"
    )
    proto = model(text)
    fresh = {"a": "y/0", "b": "korch/y/0", "c": "y/outer1"}
    for node in proto.graph.node:
        node.name = f"korch/{node.output[0]}/0"
        node.input[:] = [fresh.get(name, name) for name in node.input]
        node.output[:] = [fresh.get(name, name) for name in node.output]
    return Row(proto, {"x": floats(3)}, equal())


@row
def a_very_long_name() -> Row:
    proto = model("g (float[3] x) => (float[3] y) { a = Relu(x) y = Neg(a) }")
    name = "scope/" * 2000
    proto.graph.node[0].output[0] = proto.graph.node[1].input[0] = name
    proto.graph.node[0].name = name
    return Row(proto, {"x": floats(3)}, equal())


@row
def an_output_inside_a_fused_chain() -> Row:
    text = "g (float[2,8] x) => (float[2,8] y, float[2,8] s) { s = Sigmoid(x) p = Mul(x, s) y = Relu(p) }"
    return Row(model(text), {"x": floats(2, 8)}, equal())


@row
def a_product_and_its_bias_as_outputs() -> Row:
    text = "g (float[2,8] x) => (float[2,4] p, float[2,4] y) { p = MatMul(x, w) y = Add(p, b) }"
    return Row(model(text, w=floats(8, 4), b=floats(4)), {"x": floats(2, 8)}, equal())


@row
def a_convolution_and_its_activation_as_outputs() -> Row:
    text = """g (float[1,3,6,6] x) => (float[1,4,4,4] c, float[1,4,4,4] n, float[1,4,4,4] y) {
        c = Conv(x, w) n = BatchNormalization(c, s, b, m, v) y = Relu(n) }"""
    return Row(model(text, **_conv_weights()), {"x": floats(1, 3, 6, 6)}, equal())


@row
def every_step_of_a_normalization_as_output() -> Row:
    text = """g (float[2,6] x) => (float[2,1] a, float[2,6] d, float[2,1] v, float[2,6] y) {
        a = ReduceMean <axes = [-1]> (x) d = Sub(x, a) q = Mul(d, d) v = ReduceMean <axes = [-1]> (q)
        r = Sqrt(v) y = Div(d, r) }"""
    return Row(model(text), {"x": floats(2, 6)}, equal())


@row
def an_output_that_another_node_reads_on() -> Row:
    text = "g (float[4] x) => (float[4] a, float[4] b) { a = Relu(x) b = Neg(a) c = Exp(b) }"
    return Row(model(text), {"x": floats(4)}, equal())


@row
def an_input_that_is_an_output() -> Row:
    text = "g (float[4] x, float[4] z) => (float[4] z, float[4] y, float[4] x) { y = Relu(x) }"
    return Row(model(text), {"x": floats(4), "z": floats(4, seed=1)}, equal(), variants=("as is", "symbolic"))


@row
def an_initializer_that_is_an_output() -> Row:
    text = "g (float[4] x) => (float[4] w, float[4] y) { t = Add(x, w) y = Relu(t) }"
    return Row(model(text, w=floats(4, seed=1)), {"x": floats(4)}, equal())


@row
def a_constant_that_is_an_output() -> Row:
    text = """g (float[4] x) => (float[4] k, float[2] s, float[4] y) {
        k = Constant <value_floats = [1.0, 2.0, 3.0, 4.0]> () z = Constant <value_ints = [2]> ()
        s = ConstantOfShape(z) y = Add(x, k) }"""
    return Row(model(text), {"x": floats(4)}, equal())


@row
def one_tensor_as_output_twice() -> Row:
    text = "g (float[4] x) => (float[4] y, float[4] y) { a = Relu(x) y = Neg(a) }"
    return Row(model(text), {"x": floats(4)}, equal())


@row
def an_output_that_is_another_under_a_new_name() -> Row:
    text = "g (float[4] x) => (float[4] y, float[4] z, float[4] i) { y = Relu(x) z = Identity(y) i = Identity(x) }"
    return Row(model(text), {"x": floats(4)}, equal())


@row
def outputs_without_shape() -> Row:
    proto = model("g (float[2,3] x) => (float[2,3] y, float[3,2] z) { y = Relu(x) z = Transpose(y) }")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    proto.graph.output[1].ClearField("type")
    # Without a type the model is incomplete, and ONNX Runtime completes it.
    return Row(proto, {"x": floats(2, 3)}, equal(), variants=("as is",))


@row
def an_input_without_shape() -> Row:
    proto = model("g (float[2,3] x) => (float[2,3] y) { a = Relu(x) y = Neg(a) }")
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    return Row(proto, {"x": floats(2, 3)}, equal(), variants=("as is",))


@row
def inputs_that_nothing_reads() -> Row:
    text = "g (float[3] unused, float[3] x, int64 count, string[2] words) => (float[3] y) { y = Relu(x) }"
    feeds = {"unused": floats(3), "x": floats(3), "count": np.array(1), "words": np.array(["a", "b"], object)}
    return Row(model(text), feeds, equal(), data=("unused", "x", "count", "words"))


@row
def nodes_and_weights_that_nothing_needs() -> Row:
    text = "g (float[3] x) => (float[3] y) { dead = Exp(x) deader = Add(dead, w) y = Relu(x) }"
    return Row(model(text, w=floats(3), v=floats(5)), {"x": floats(3)}, equal())


@row
def nothing_is_fed() -> Row:
    text = "g () => (float[3] y, float[2,2] z) { a = Add(w, w) y = Relu(a) z = EyeLike <dtype = 1> (k) }"
    proto = model(text, w=floats(3), k=np.zeros((2, 2), np.float32))
    return Row(proto, {}, opaque("EyeLike", around=False), variants=("as is",))


@row
def no_node_at_all() -> Row:
    return Row(model("g (float[3] x) => (float[3] x) {}"), {"x": floats(3)}, error(3, "empty"))


@row
def no_output_at_all() -> Row:
    return Row(model("g (float[3] x) => () { y = Relu(x) }"), {"x": floats(3)}, error(3, "no outputs"))


@row
def documentation_everywhere() -> Row:
    proto = model("g (float[2,2] x) => (float y) { a = Relu(x) d = Det(a) y = Neg(d) }", ir=10)
    proto.doc_string, proto.producer_name, proto.producer_version = "of the model", "somebody", "1.2"
    proto.domain, proto.model_version = "org.example", 7
    helper.set_model_props(proto, {"author": "somebody", "licence": "none"})
    graph = proto.graph
    graph.doc_string = "of the graph"
    graph.metadata_props.add(key="graph", value="data")
    for thing in (*graph.input, *graph.output, *graph.node):
        thing.doc_string = f"of {thing.name or thing.op_type}"
        thing.metadata_props.add(key="about", value="thing")
    for i, node in enumerate(graph.node):
        node.name = f"n{i}"
    graph.input[0].type.denotation = "IMAGE"
    graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    return Row(proto, {"x": floats(2, 2)}, opaque("Det"), variants=("as is",))


@row
def a_dynamic_batch_that_a_reshape_reads() -> Row:
    text = """g (float[N,3,4] x) => (float[N,12] y) {
        s = Shape(x) n = Gather <axis = 0> (s, zero) u = Unsqueeze(n, axes) t = Concat <axis = 0> (u, rest)
        a = Reshape(x, t) y = Relu(a) }"""
    weights: dict[str, Any] = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    return Row(model(text, **weights), {"x": floats(2, 3, 4)}, equal())


@row
def a_gemm_with_a_transposed_bias() -> Row:
    text = "g (float[2,3] a, float[3,4] b, float[4,2] c) => (float[2,4] y) { t = Transpose(c) y = Gemm(a, b, t) }"
    feeds = {"a": floats(2, 3), "b": floats(3, 4), "c": floats(4, 2)}
    return Row(model(text), feeds, equal(), fused_in=("as is", "symbolic"))


@row
def transposes_that_undo_each_other() -> Row:
    text = """g (float[2,3,4] x) => (float[2,3,4] y) {
        a = Transpose <perm = [1,2,0]> (x) b = Transpose <perm = [2,0,1]> (a) c = Transpose(b) d = Transpose(c)
        y = Relu(d) }"""
    return Row(model(text), {"x": floats(2, 3, 4)}, equal())


@row
def stale_types_between_nodes() -> Row:
    proto = model("g (float[2,3] x) => (float[2,3] y) { a = Relu(x) b = Neg(a) y = Exp(b) }")
    proto.graph.value_info.append(helper.make_tensor_value_info("gone", 1, [7]))
    proto.graph.value_info.append(helper.make_tensor_value_info("a", 1, ["n", "m"]))
    return Row(proto, {"x": floats(2, 3)}, equal())


@row
def both_names_of_the_default_domain() -> Row:
    proto = model("g (float[3] x) => (float[3] y) { a = Relu(x) y = Neg(a) }", opset=0, domains={"ai.onnx": 17})
    proto.graph.node[0].domain = "ai.onnx"
    return Row(proto, {"x": floats(3)}, equal())


@row
def the_long_name_of_the_default_domain_in_shape_arithmetic() -> Row:
    text = """g (float[N,6] x) => (float[M,3] y) {
        s = Shape(x) n = Gather(s, zero) m = Mul(n, two) t = Concat <axis = 0> (m, three)
        r = Reshape(x, t) y = Relu(r) }"""
    weights: dict[str, Any] = {"zero": np.array([0]), "two": np.array([2]), "three": np.array([3])}
    proto = model(text, opset=0, domains={"ai.onnx": 17}, **weights)
    for node in proto.graph.node:
        node.domain = "ai.onnx"
    return Row(proto, {"x": floats(2, 6)}, equal())


@row
def the_default_domain_imported_under_both_names() -> Row:
    proto = model("g (float[3] x) => (float[3] y) { a = Relu(x) y = Neg(a) }", domains={"ai.onnx": 17})
    return Row(proto, {"x": floats(3)}, equal())


@row
def opsets_that_no_node_needs() -> Row:
    domains = {"ai.onnx.ml": 3, "com.example.nothing": 4, "com.microsoft": 1}
    return Row(model("g (float[3] x) => (float[3] y) { y = Relu(x) }", domains=domains), {"x": floats(3)}, equal())


@row
def sparse_weights() -> Row:
    proto = model("g (float[3] x) => (float[3] y) { a = Add(x, w) y = Relu(a) }")
    values = numpy_helper.from_array(np.array([2.5], np.float32), "w")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([1]), "w_indices"), [3])
    proto.graph.sparse_initializer.append(sparse)
    return Row(proto, {"x": floats(3)}, equal(), variants=("as is",))


@row
def annotations_and_training() -> Row:
    proto = model("g (float[3] x) => (float[3] y) { a = Relu(x) y = Neg(a) }")
    annotation = onnx.TensorAnnotation(tensor_name="a")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    proto.graph.quantization_annotation.append(annotation)
    return Row(proto, {"x": floats(3)}, equal())
