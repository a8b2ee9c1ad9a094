"""Rows about files: what is no model, data in other files, versions that nobody knows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from survival_row import Link, Row, equal, error, external, floats, model, opaque, row

_TEXT = "g (float[2,4] x) => (float[2,3] y) { a = Relu(x) m = MatMul(a, w) y = Neg(m) }"
_WEIGHT = floats(4, 3)


def _outside(location: str, **entries: Any) -> onnx.ModelProto:
    proto = model(_TEXT)
    proto.graph.initializer.append(external("w", (4, 3), location, **entries))
    return proto


def _stored(location: str, content: bytes, **entries: Any) -> Row:
    proto = _outside(location, **entries)
    return Row(proto, {"x": floats(2, 4)}, equal(), files={location: content})


def _refused(location: str, *words: str, files: dict[str, Any] | None = None, **entries: Any) -> Row:
    return Row(_outside(location, **entries), {}, error(3, "w", *words), files=files or {})


@row
def weights_in_another_file() -> Row:
    return _stored("w.bin", b"\1" * 7 + _WEIGHT.tobytes() + b"\2" * 9, offset=7, length=48)


@row
def weights_in_a_folder_below() -> Row:
    return _stored("data/of/w.bin", _WEIGHT.tobytes())


@row
def weights_with_neither_offset_nor_length() -> Row:
    return _stored("w.bin", _WEIGHT.tobytes() + b"more")


@row
def weights_with_empty_offset_and_checksum() -> Row:
    return _stored("w.bin", _WEIGHT.tobytes(), offset=0, length=48, checksum="0" * 40)


@row
def weights_in_a_file_with_an_odd_name() -> Row:
    return _stored("naïve ☃ weights.bin", _WEIGHT.tobytes())


@row
def weights_in_the_file_that_korch_would_write() -> Row:
    return _stored("fast.onnx.data", _WEIGHT.tobytes())


@row
def two_tensors_in_one_place() -> Row:
    text = "g (float[2,4] x) => (float[2,3] y) { m = MatMul(x, w) n = MatMul(x, v) a = Sub(m, n) y = Exp(a) }"
    proto = model(text)
    proto.graph.initializer.extend(external(name, (4, 3), "w.bin", offset=0, length=48) for name in "wv")
    return Row(proto, {"x": floats(2, 4)}, equal(), files={"w.bin": _WEIGHT.tobytes()})


@row
def tensors_that_overlap() -> Row:
    text = "g (float[4] x) => (float[4] y) { m = Mul(x, w) y = Add(m, v) }"
    proto = model(text)
    proto.graph.initializer.append(external("w", (4,), "w.bin", offset=0, length=16))
    proto.graph.initializer.append(external("v", (4,), "w.bin", offset=8, length=16))
    return Row(proto, {"x": floats(4)}, equal(), files={"w.bin": _WEIGHT.tobytes()})


@row
def half_of_the_weights_elsewhere() -> Row:
    text = "g (float[2,4] x) => (float[2,3] y) { m = MatMul(x, w) a = Add(m, b) y = Relu(a) }"
    proto = model(text, b=floats(3))
    proto.graph.initializer.append(external("w", (4, 3), "w.bin"))
    return Row(proto, {"x": floats(2, 4)}, equal(), files={"w.bin": _WEIGHT.tobytes()})


@row
def weights_of_a_branch_elsewhere() -> Row:
    text = """g (float[4] x, bool c) => (float[4] y) {
        h = Relu(x)
        z = If(c) <then_branch = a () => (float[4] t) { t = Mul(h, v) },
                  else_branch = b () => (float[4] e) { e = Neg(h) }>
        y = Exp(z) }"""
    proto = model(text)
    proto.graph.node[1].attribute[0].g.initializer.append(external("v", (4,), "w.bin", offset=16, length=16))
    feeds = {"x": floats(4), "c": np.array(True)}
    return Row(proto, feeds, opaque("If"), files={"w.bin": _WEIGHT.tobytes()})


@row
def an_empty_weight_elsewhere() -> Row:
    text = "g (float[2,3] x) => (float[2,3] y) { a = Concat <axis = 0> (x, w) y = Neg(a) }"
    proto = model(text)
    proto.graph.initializer.append(external("w", (0, 3), "w.bin", offset=0, length=0))
    return Row(proto, {"x": floats(2, 3)}, equal(), files={"w.bin": b"unused"})


@row
def a_location_above() -> Row:
    return _refused("../w.bin", "outside", files={"../w.bin": _WEIGHT.tobytes()})


@row
def a_location_above_and_back() -> Row:
    return _refused("../in/w.bin", "outside", files={"w.bin": _WEIGHT.tobytes()})


@row
def a_location_above_in_the_middle() -> Row:
    return _refused("data/../../w.bin", "outside", files={"../w.bin": _WEIGHT.tobytes(), "data/x": b""})


@row
def an_absolute_location() -> Row:
    return _refused("/etc/hostname", "outside")


@row
def a_location_of_windows() -> Row:
    return _refused("C:\\weights\\w.bin", "outside")


@row
def a_location_above_of_windows() -> Row:
    return _refused("..\\w.bin", "outside", files={"..\\w.bin": _WEIGHT.tobytes()})


@row
def a_symbolic_link_out_of_the_folder() -> Row:
    files = {"../secret": _WEIGHT.tobytes(), "w.bin": Link("../secret")}
    return _refused("w.bin", "outside", files=files)


@row
def a_linked_folder() -> Row:
    files = {"../elsewhere/w.bin": _WEIGHT.tobytes(), "data": Link("../elsewhere")}
    return _refused("data/w.bin", "outside", files=files)


@row
def a_hard_link() -> Row:
    files = {"../secret": _WEIGHT.tobytes(), "w.bin": Link("../secret", hard=True)}
    return _refused("w.bin", "link", files=files)


@row
def a_location_that_is_a_folder() -> Row:
    return _refused("data", "missing", files={"data/w.bin": _WEIGHT.tobytes()})


@row
def no_location() -> Row:
    return _refused("")


@row
def a_location_with_a_null_byte() -> Row:
    return _refused("w\0.bin")


@row
def a_file_that_is_missing() -> Row:
    return _refused("w.bin", "missing")


@row
def a_file_that_is_too_short() -> Row:
    return _refused("w.bin", "48 bytes", files={"w.bin": _WEIGHT.tobytes()[:-1]})


@row
def an_offset_beyond_the_end() -> Row:
    return _refused("w.bin", "48 bytes", files={"w.bin": _WEIGHT.tobytes()}, offset=2**62)


@row
def an_offset_before_the_beginning() -> Row:
    return _refused("w.bin", files={"w.bin": _WEIGHT.tobytes() * 2}, offset=-8)


@row
def an_offset_that_is_no_number() -> Row:
    return _refused("w.bin", "no number", files={"w.bin": _WEIGHT.tobytes()}, offset="4k")


@row
def a_length_that_is_too_small() -> Row:
    return _refused("w.bin", files={"w.bin": _WEIGHT.tobytes()}, length=8)


@row
def an_external_tensor_of_absurd_size() -> Row:
    proto = model(_TEXT)
    proto.graph.initializer.append(external("w", (2**40, 2**40), "w.bin"))
    return Row(proto, {}, error(3, "w"), files={"w.bin": _WEIGHT.tobytes()})


@row
def a_tensor_with_too_few_elements() -> Row:
    proto = model(_TEXT)
    proto.graph.initializer.add(name="w", data_type=1, dims=[4, 3], raw_data=b"\0" * 44)
    return Row(proto, {}, error(3, "w", "44 bytes"))


@row
def a_tensor_with_too_few_numbers() -> Row:
    proto = model(_TEXT)
    proto.graph.initializer.add(name="w", data_type=1, dims=[4, 3], float_data=[1.0] * 11)
    return Row(proto, {}, error(3, "w"))


@row
def a_tensor_of_negative_size() -> Row:
    proto = model(_TEXT)
    proto.graph.initializer.add(name="w", data_type=1, dims=[-4, 3])
    return Row(proto, {}, error(3, "w", "negative"))


@row
def an_empty_file() -> Row:
    return Row(b"", {}, error(3, "no ONNX model"))


@row
def a_file_of_text() -> Row:
    return Row(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n", {}, error(3, "no ONNX model"))


@row
def a_model_that_was_cut_off() -> Row:
    whole = model(_TEXT, w=_WEIGHT).SerializeToString()
    return Row(whole[: len(whole) * 2 // 3], {}, error(3, "no ONNX model"))


@row
def a_model_without_opsets() -> Row:
    return Row(model(_TEXT, w=_WEIGHT, opset=0), {}, error(3, "opset"))


@row
def a_version_of_the_format_that_nobody_knows() -> Row:
    return Row(model(_TEXT, w=_WEIGHT, ir=99), {}, error(4, "IR version", "99"))


@row
def an_opset_that_nobody_knows() -> Row:
    return Row(model(_TEXT, w=_WEIGHT, opset=99), {}, error(4, "opset", "99"))


@row
def a_dimension_without_a_number() -> Row:
    text = "g (float[batch,4] x, float[batch,?] z) => (float[batch,4] y) { y = Relu(x) }"
    return Row(model(text.replace("?", "N")), {}, error(2, "--dim batch=", "--dim N="))


@row
def a_dimension_that_the_model_lacks() -> Row:
    return Row(model(_TEXT, w=_WEIGHT), {}, error(2, "'batch'"), flags=("--dim", "batch=1"))


@row
def a_shape_that_contradicts_the_model() -> Row:
    return Row(model(_TEXT, w=_WEIGHT), {}, error(2, "x"), flags=("--shape", "x=2x5"))
