"""Every operator of the table with kernels of ours inside, in one library, against what ONNX Runtime computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from operator_case import Case, assert_same, run_ort  # type: ignore[import-not-found]
from test_single_operator_fission import CASES  # type: ignore[import-not-found]

from korch_cli.core.model import Bindings
from korch_cli.core.types import Array
from korch_cli.pipeline.forced import Fusion, build_fusions, plan_fusion
from korch_cli.toolchain import find_compiler

_JOBS = 2
_APART = 4.0
"""Kernels may differ from ONNX Runtime by this many times what the interpreter may."""


def _newest() -> list[Case]:
    """The first case of each operator that ONNX Runtime computes, at its newest version."""
    newest: dict[tuple[str, str], int] = {}
    for each in CASES:
        key = (each.domain, each.op_type)
        newest[key] = max(newest.get(key, 0), each.version)
    first: dict[tuple[str, str], Case] = {}
    for each in CASES:
        key = (each.domain, each.op_type)
        if each.version == newest[key]:
            first.setdefault(key, each)
    return list(first.values())


def _run(model: Path, library: Path | None, feeds: dict[str, Array]) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if library is not None:
        options.register_custom_ops_library(str(library))
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return [np.asarray(array) for array in session.run(None, feeds)]


@pytest.mark.slow
def test_fused_operators_compute_what_the_runtime_does(tmp_path: Path) -> None:
    fusions: dict[str, tuple[Case, list[Array], Fusion]] = {}
    for each in _newest():
        try:
            expected = run_ort(each.proto(), each.feeds())
        except Exception:
            continue
        source = tmp_path / f"{len(fusions)}.onnx"
        onnx.save(each.proto(expected), source)
        fusion = plan_fusion(source, Bindings({}, {}))
        if fusion.kernels:
            fusions[each.id] = each, expected, fusion
    assert len(fusions) > 100
    outputs = [tmp_path / f"{i}_fused.onnx" for i in range(len(fusions))]
    library = tmp_path / "operators.so"
    plans = [fusion for _, _, fusion in fusions.values()]
    build_fusions(plans, outputs, library, find_compiler(None), tmp_path / "objects", _JOBS)
    wrong = []
    for (name, (each, expected, _)), output in zip(fusions.items(), outputs, strict=True):
        for given in (library, None):
            try:
                for got, wanted in zip(_run(output, given, each.feeds()), expected, strict=True):
                    assert_same(got, wanted, max(each.tolerance or 0.0, 1e-5) * _APART)
            except Exception as error:
                wrong.append(f"{name} {'with' if given else 'without'} the library: {error}")
    assert not wrong, "\n".join(wrong)
