"""Forms for the blocked layout are written only where they are one: what the rules about it leave alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rule_sketches import SKETCHES, Sketch

from korch_cli.algebra import simplify
from korch_cli.algebra.families import entered
from korch_cli.algebra.rule import Rule
from korch_cli.core.model import Bindings
from korch_cli.load import load

RULES: dict[str, Rule] = {rule.apply.__name__: rule for rule in entered()}


def applied(s: Sketch, folder: Path, name: str) -> onnx.ModelProto | None:
    path = folder / "model.onnx"
    path.write_bytes(s.proto().SerializeToString())
    found = simplify(load(path, Bindings({}, {})), chosen=[RULES[name]])
    if found is None:
        return None
    assert isinstance(found.proto, onnx.ModelProto)
    return found.proto


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_precisions_have_no_blocked_form(tmp_path: Path, dtype: Any) -> None:
    s = Sketch(np.random.default_rng(0), dtype=dtype)
    s.outputs = [SKETCHES["split_convolutions"][0](s)]
    assert applied(s, tmp_path, "split_convolutions") is None


def split(sizes: list[int], *, reader: str = "Concat") -> Sketch:
    s = Sketch(np.random.default_rng(0))
    y = s.add("Conv", s.input(1, 3, 4, 4), s.weights(sum(sizes), 3, 1, 1))
    y = s.add("Relu", y)
    parts = s.add("Split", y, s.integers(*sizes), outputs=len(sizes), axis=1)
    if reader == "Concat":
        s.outputs = [s.add("Concat", *parts, axis=1)]
    else:
        s.outputs = [s.add(reader, part) for part in parts]
    return s


def test_a_convolution_is_split_into_whole_blocks(tmp_path: Path) -> None:
    assert applied(split([16, 32]), tmp_path, "split_convolutions") is not None
    assert applied(split([16, 8]), tmp_path, "split_convolutions") is None


def test_a_convolution_stays_whole_for_readers_without_a_blocked_form(tmp_path: Path) -> None:
    assert applied(split([16, 32], reader="Exp"), tmp_path, "split_convolutions") is None


@pytest.mark.parametrize("inner", [0, 1])
def test_a_convolution_stays_whole_if_something_else_reads_it(tmp_path: Path, inner: int) -> None:
    s = split([16, 16])
    s.outputs.append(s.nodes[inner].output[0])
    assert applied(s, tmp_path, "split_convolutions") is None


def test_grouped_convolutions_are_not_split(tmp_path: Path) -> None:
    s = split([16, 16])
    s.constants[s.nodes[0].input[1]] = np.ones((32, 1, 1, 1))
    s.inputs[s.nodes[0].input[0]] = (1, 32, 4, 4)
    s.nodes[0].attribute.append(onnx.helper.make_attribute("group", 32))
    assert applied(s, tmp_path, "split_convolutions") is None


def test_a_whole_chain_becomes_one_normalization(tmp_path: Path) -> None:
    s = Sketch(np.random.default_rng(0))
    y = s.add("Relu", s.add("Conv", s.input(1, 3, 4, 4), s.weights(4, 3, 1, 1)))
    y = s.add("Add", s.add("Mul", y, s.constant([0.7])), s.constant([0.3]))
    s.outputs = [s.add("Conv", y, s.weights(4, 4, 3, 3), pads=[1, 1, 1, 1])]
    proto = applied(s, tmp_path, "normalize_affine_maps")
    assert proto is not None
    assert [node.op_type for node in proto.graph.node] == ["Conv", "Relu", "BatchNormalization", "Conv"]
