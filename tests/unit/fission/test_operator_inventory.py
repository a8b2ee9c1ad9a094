"""Every operator of ONNX's own domain has its place: split, known before the model runs, or left alone for a reason."""

from __future__ import annotations

import onnx
import pytest

from korch_cli.fission import fission  # noqa: F401 - fills the table
from korch_cli.fission.registry import LATEST, rows

_SPLIT = frozenset(row.op_type for row in rows() if not row.domain)
_KNOWN = frozenset({"Constant", "Range", "Shape", "Size"})
"""Loading computes these where they are known before the model runs; elsewhere there is nothing to fuse."""
_LEFT_ALONE = {
    "control flow": ("If", "Loop", "Scan", "SequenceMap"),
    "sequences and optional values are no tensors": (
        "ConcatFromSequence",
        "Optional",
        "OptionalGetElement",
        "OptionalHasElement",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceEmpty",
        "SequenceErase",
        "SequenceInsert",
        "SequenceLength",
        "SplitToSequence",
    ),
    "strings, and files": (
        "ImageDecoder",
        "RegexFullMatch",
        "StringConcat",
        "StringNormalizer",
        "StringSplit",
        "TfIdfVectorizer",
    ),
    "quantized: the runtime recognises patterns of them": (
        "ConvInteger",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "MatMulInteger",
        "QLinearConv",
        "QLinearMatMul",
        "QuantizeLinear",
    ),
    "random": (
        "Bernoulli",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    ),
    "recurrent: each step needs the one before": ("GRU", "LSTM", "RNN"),
    "the size or the order of the result depends on the data": (
        "NonMaxSuppression",
        "NonZero",
        "TopK",
        "Unique",
    ),
    "where elements come from depends on the data": (
        "DeformConv",
        "GridSample",
        "MaxRoiPool",
        "MaxUnpool",
        "RoiAlign",
    ),
    "an algorithm with fewer steps than its sum has": ("DFT", "Det", "STFT"),
    "a table made from numbers alone, in front of a transform": (
        "BlackmanWindow",
        "HammingWindow",
        "HannWindow",
        "MelWeightMatrix",
    ),
    "no primitive reads the bits of an element as another type": ("BitCast",),
}
_ALONE = [name for names in _LEFT_ALONE.values() for name in names]
_DEFINED = sorted(
    {s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain and s.since_version <= LATEST[""]}
)


@pytest.mark.parametrize("name", _DEFINED)
def test_an_operator_has_exactly_one_place(name: str) -> None:
    assert (name in _SPLIT) + (name in _KNOWN) + _ALONE.count(name) == 1


def test_only_operators_have_a_place() -> None:
    assert {*_KNOWN, *_ALONE} <= set(_DEFINED)


@pytest.mark.parametrize("name", sorted(_SPLIT & set(_DEFINED)))
def test_an_operator_is_split_at_every_version_from_7_on(name: str) -> None:
    """From the first definition to the newest one, or to the one that withdraws it."""
    history = [s for s in onnx.defs.get_all_schemas_with_history() if not s.domain and s.name == name]
    first = max(7, min(s.since_version for s in history))
    end = min([s.since_version for s in history if s.deprecated], default=LATEST[""] + 1)
    own = [row for row in rows() if (row.domain, row.op_type) == ("", name)]
    left = {v for v in range(first, end) if not any(r.since <= v <= (r.until or LATEST[""]) for r in own)}
    assert left == _GAPS.get(name, set())


_GAPS = {"GlobalLpPool": set(range(22, LATEST[""] + 1))}
"""Where neither the runtime nor onnx's reference can say what is right."""
