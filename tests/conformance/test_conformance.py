"""A tenth of the backend tests of onnx, chosen by hash, optimised with forced fusion and compared with ONNX Runtime.

`make conformance` runs all of them. docs/conformance.md explains what is checked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from korch_cli.toolchain import Compiler, find_compiler
from tests.conformance.cases import Case, all_cases, share
from tests.conformance.expectations import EXPECTATIONS, Expectations, complaints, read, vanished
from tests.conformance.supervising import Supervision
from tests.conformance.variants import VARIANTS

PORTIONS = 10
BATCHES = 8
"""So that processes that run tests at the same time share the work."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder for what all processes that run tests share: the cases, compiled kernels."""
    base = tmp_path_factory.getbasetemp()
    return (base if worker_id == "master" else base.parent) / "conformance"


@pytest.fixture(scope="module")
def cases(kept: Path) -> tuple[Case, ...]:
    return all_cases(kept)


@pytest.fixture(scope="module")
def expectations() -> Expectations:
    return read(EXPECTATIONS)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return find_compiler(None)


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
def test_a_tenth_of_the_backend_tests_comes_out_as_expected(
    batch: int, cases: tuple[Case, ...], expectations: Expectations, kept: Path, compiler: Compiler
) -> None:
    chosen = [case for case in cases if share(case.id, PORTIONS) == 0][batch::BATCHES]
    supervision = Supervision(tuple(VARIANTS), kept, compiler, expectations.skipped)
    verdicts = supervision.judge(chosen)
    assert len(verdicts) == len(supervision.keys(chosen) - expectations.skipped)
    assert not complaints(expectations, verdicts)


@pytest.mark.slow
def test_every_exception_is_about_a_trial_that_exists(
    cases: tuple[Case, ...], expectations: Expectations, kept: Path
) -> None:
    supervision = Supervision(tuple(VARIANTS), kept, None)
    assert not vanished(expectations, supervision.keys(cases))
