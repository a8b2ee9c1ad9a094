from __future__ import annotations

import dataclasses

from korch_cli.core.inspection import InspectRecord
from korch_cli.report import render_inspect


def test_the_text_says_what_is_there_and_what_is_not_done(inspected: InspectRecord) -> None:
    text = render_inspect(inspected)
    for part in (
        "m.onnx",
        "IR version 8 · opsets: ai.onnx 17 · written by exporter 1.2",
        "in the file: 40 nodes, 3 functions, 12 tensors of 5.0 MiB",
        "external data: m.data, 7 tensors of 4.0 MiB",
        "→ 1,205 primitives · opaque 3",
        "input 'x': f32[1,3]",
        "input 's': not known before the model runs",
        "output 'y': f16[]",
        "1,203× elementwise: add ×1,200, mul ×3",
        "2× reshape",
        "2× it has a subgraph (Loop ×1, If ×1)",
        "1× there is no fission of Twist (my.ops::Twist ×1)",
        "4,000 sets of up to 16 primitives, 900 distinct; 30 operators of ONNX Runtime's",
        "asked for 300 (--exhaustive takes all): 285 accepted (pointwise ×280, row ×5)",
        "10× No.",
        "5× Opset 8 cannot.",
        "7× too many",
        "note: Input 'x' was bound to 1x3.",
    ):
        assert part in text, part


def test_what_korch_wrote_is_listed_with_what_it_replaces(inspected: InspectRecord) -> None:
    text = render_inspect(inspected)
    assert "korch wrote this model: 3 nodes of 40 run its kernels" in text
    assert "library: m.korch.so" in text
    assert "k_a     a + b + c + 1 more  row" in text
    assert "a + b + c + d" in render_inspect(inspected, verbose=True)


def test_a_model_that_stayed_as_it_was_says_so(inspected: InspectRecord) -> None:
    assert inspected.output is not None
    unchanged = dataclasses.replace(inspected.output, kernels=(), reason="Nothing is faster.")
    text = render_inspect(dataclasses.replace(inspected, output=unchanged))
    assert "korch left this model unchanged: Nothing is faster." in text
    assert "korch wrote" not in text
    assert "korch left" not in render_inspect(dataclasses.replace(inspected, output=None))


def test_verbose_lists_everything(inspected: InspectRecord) -> None:
    short, long = render_inspect(inspected), render_inspect(inspected, verbose=True)
    assert "and 3 more (-v lists them)" in short
    assert "Op14" not in short
    assert "Op14" in long
    assert "-v lists" not in long
    assert "Twist     mine  there is no fission of Twist" in long
    assert "mine" not in short
