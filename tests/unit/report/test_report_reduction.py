from __future__ import annotations

import dataclasses

from korch_cli.core.record import ReduceRecord
from korch_cli.report import render_reduce


def test_the_text_says_what_is_left_and_what_the_check_says(reduction: ReduceRecord) -> None:
    text = render_reduce(reduction)
    for part in (
        "m.onnx",
        "check: korch optimize '{}' -o 'a b.onnx'",
        "it says: error: this is a bug in korch: KeyError: 'x'",
        "nodes        672      2",
        "size     5.0 MiB  900 B",
        "what is left: Conv, my.ops::Twist",
        "wrote small.onnx · small.onnx.data",
        "REDUCED, 23 trials in 1 min 15 s: Nothing more can be left out of it.",
    ):
        assert part in text, part


def test_long_parts_are_abridged(reduction: ReduceRecord) -> None:
    text = render_reduce(dataclasses.replace(reduction, operators=("Relu",) * 1015))
    assert "Relu and 1,003 more" in text
    long = render_reduce(dataclasses.replace(reduction, message="x" * 500))
    assert f"it says: {'x' * 200}…\n" in long


def test_what_was_not_reduced_has_no_table(reduction: ReduceRecord) -> None:
    nothing = dataclasses.replace(reduction, reduced=False, ended="nothing", written=(), reason="The check passes.")
    text = render_reduce(nothing)
    assert text.endswith("NOT REDUCED, 23 trials in 1 min 15 s: The check passes.")
    assert "wrote" not in text
    assert "before" not in text
