"""The elementary functions of generated kernels against the C library in double, over samples of all floats."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from korch_cli.codegen import headers
from korch_cli.toolchain import find_compiler
from tests.vector_math.sweeping import BOUNDS, LIBRARY, Finding, build, complaint, sweep

STRIDE = 2039
"""A prime: the samples have every exponent and every pattern of low bits."""


@pytest.mark.parametrize("anywhere", [False, True])
def test_functions_keep_their_bounds(anywhere: bool, tmp_path: Path) -> None:
    compiler = find_compiler(os.environ.get("KORCH_CXX"))
    if anywhere:  # The oldest processor fuses no products with sums, and has the shortest vectors.
        compiler = compiler.for_any_processor()
    build(compiler.command, compiler.flags, tmp_path / "sweep")
    found = sweep([str(tmp_path / "sweep")], [*BOUNDS, *LIBRARY], stride=STRIDE)
    assert not [text for name, finding in found.items() if (text := complaint(name, finding))]
    # A sweep that compares nothing would find nothing: none of these is exact, nor can be.
    assert all(found[name].error > 0.4 for name in ("exp", "tanh", "log", "erf", "sin", "pow", "sqrt"))


def test_what_is_out_of_bounds_is_told() -> None:
    assert "off by 2.100 ulp at 0.5" in str(complaint("exp", Finding(2.1, 0.5, 0, 0.0)))
    assert "3 results of another kind" in str(complaint("exp", Finding(0.0, 0.5, 3, float("nan"))))
    assert complaint("exp", Finding(1.25, 0.5, 0, 0.0)) is None


def test_header_promises_what_is_tested() -> None:
    text = headers()["korch_vector.h"]
    for name, bound in BOUNDS.items():
        if bound.ulp > 0.5 and name != "rsqrt":  # that is two functions, one of the other
            comment = re.search(rf"((?://[^\n]*\n)+)template <class V>\nKORCH_INLINE V {name}_?\(", text)
            assert comment is not None, name
            assert f"at most {bound.ulp:g} ulp" in comment.group(1), name
