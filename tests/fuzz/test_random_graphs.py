"""Random graphs mean the same when they are split into primitives, written as functions, and run as kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from korch_cli.codegen import generate
from korch_cli.core.elementwise import FUNCTIONS
from korch_cli.core.kernel import Kernel, KernelBody
from korch_cli.core.types import Array
from tests.fuzz.batches import Tally, draw, run_batch
from tests.fuzz.graphs import Network
from tests.fuzz.oracle import Expectation
from tests.fuzz.trials import expectations, try_primitives

_SPLIT = 12, 25
"""Batches that are split and interpreted, and models in each."""
_BUILT = 24
"""Models that are built with their kernels."""


def tried(drawn: Sequence[Network], folder: Path, *, kernels: bool) -> Tally:
    return run_batch(drawn, folder, kernels=kernels, journal=lambda _: None, jobs=2)


def words(tally: Tally) -> str:
    """Say what is wrong and with which operators; the models' texts are long."""
    named = [(f, [node.op_type for node in f.network.model.graph.node]) for f in tally.findings]
    return "\n".join(f"{f.level}: {f.sentence} in {operators}" for f, operators in named)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(_SPLIT[0]))
def test_primitives_mean_what_the_model_does(number: int, tmp_path: Path) -> None:
    tally = tried(draw(number, _SPLIT[1]), tmp_path, kernels=False)
    assert not tally.findings, words(tally)
    assert tally.judged > 0.7 * tally.elements


@pytest.mark.slow
@pytest.mark.parametrize("number", [100, 101])
def test_functions_and_kernels_mean_what_the_model_does(number: int, tmp_path: Path) -> None:
    tally = tried(draw(number, _BUILT // 2), tmp_path, kernels=True)
    assert not tally.findings, words(tally)
    assert tally.kernels >= _BUILT // 4


@pytest.fixture(scope="module")
def sample() -> list[tuple[Network, list[Expectation | None]]]:
    return [(network, expectations(network)) for network in draw(200, 50)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        ("add", lambda x, y: x + y + 1),
        ("mul", lambda x, y: np.asarray(x * y * 1.0001).astype(x.dtype)),
        ("exp", lambda x: np.exp(x) * x.dtype.type(1.0001)),
        ("tanh", lambda x: np.tanh(x * x.dtype.type(1.001))),
        ("sqrt", lambda x: np.sqrt(x) * x.dtype.type(1.0001)),
    ],
    ids=lambda p: p if isinstance(p, str) else "",
)
def test_a_function_that_is_a_little_wrong_is_found(
    function: str,
    wrong: Callable[..., Array],
    sample: Sequence[tuple[Network, list[Expectation | None]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    def counted(*args: Array) -> Array:
        calls.append(function)
        return np.asarray(wrong(*args))

    monkeypatch.setitem(FUNCTIONS, function, replace(FUNCTIONS[function], apply=counted))
    found = {True: 0, False: 0}
    for network, expected in sample:
        calls.clear()
        sentence = try_primitives(network, expected, tmp_path)
        if calls:
            found[sentence is not None] += 1
    # Elements that rounding moves by as much are not judged, so that some graphs show nothing.
    assert 3 * found[True] >= max(1, found[False]), found


_FAULTS: dict[str, tuple[str, str | Callable[[re.Match[str]], str]]] = {
    "a sum that is a difference": (r" \+ (?=v\d)", " - "),
    "a constant that is a thousandth off": (r"(\d\.\d+)f", lambda m: f"{float(m[1]) * 1.001 + 1e-3!r}f"),
    "a last element that is missing": (r"(i\w+) < hi; \+\+", r"\1 < hi - 1; ++"),
    "a neighbour's element": (r"\((a\d) \+ ", r"(\1 + (hi > 1 ? -1 : 0) + "),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", _FAULTS)
def test_a_kernel_with_a_fault_is_found(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pattern, instead = _FAULTS[fault]
    touched: set[str] = set()

    def sabotaged(body: KernelBody) -> tuple[Kernel, ...]:
        kernel = generate(body)[0]
        head, opening, text = kernel.source.partition("{")
        source = head + opening + re.sub(pattern, instead, text)
        if source != kernel.source:
            touched.add(kernel.name)
        return (replace(kernel, source=source),)

    monkeypatch.setattr("korch_cli.pipeline.forced.generate", sabotaged)
    tally = tried(draw(300, 16), tmp_path, kernels=True)
    assert touched
    found = [f for f in tally.findings if f.level == "kernels"]
    assert len(found) >= max(1, len(touched) // 4), (len(found), len(touched))
