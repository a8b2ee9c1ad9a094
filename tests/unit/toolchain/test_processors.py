"""What kernels are built for: the flags, what the code may then need, and that builds are kept apart."""

from __future__ import annotations

import platform

import pytest

from korch_cli.core.errors import MissingError
from korch_cli.core.processor import FEATURES, LEVELS, NATIVE, PROCESSORS
from korch_cli.measure import missing_features
from korch_cli.toolchain import find_compiler

needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are those of x86-64")


@needs_x86
def test_each_level_needs_what_it_stands_for() -> None:
    third, fourth = ({f.name for f in find_compiler(None, level).features} for level in LEVELS)
    # As the psABI defines them.
    second = {"pni", "ssse3", "sse4_1", "sse4_2", "popcnt"}
    assert third == second | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"}
    assert fourth - third == {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}


def test_builds_for_different_processors_are_kept_apart() -> None:
    names = PROCESSORS if platform.machine() == "x86_64" else (NATIVE,)
    compilers = [find_compiler(None, name) for name in names]
    compilers += [compiler.for_any_processor() for compiler in compilers]
    assert len({compiler.identity for compiler in compilers}) == len(compilers)
    assert [c.processor for c in compilers[: len(names)]] == list(names)


def test_code_for_any_processor_needs_nothing() -> None:
    anywhere = find_compiler().for_any_processor()
    assert anywhere.features == ()
    assert "-march=native" not in anywhere.flags
    assert not find_compiler(None, anywhere.oldest).features


def test_this_machine_runs_what_is_built_for_it() -> None:
    assert missing_features(find_compiler().features) == ()
    assert set(missing_features(FEATURES)) < {feature.name for feature in FEATURES}


def test_a_compiler_that_does_not_know_the_processor_says_so() -> None:
    with pytest.raises(MissingError, match="for x86-64-v9") as failed:
        find_compiler("g++", "x86-64-v9")
    assert "--cpu" in str(failed.value.hint)


def test_features_are_named_once() -> None:
    assert len({f.name for f in FEATURES}) == len(FEATURES)
    assert len({f.macro for f in FEATURES}) == len(FEATURES)
    assert len({(f.word, f.part, f.register, f.bit) for f in FEATURES}) == len(FEATURES)
