"""A kernel library on a processor that it was not built for: it is refused with a sentence and not run."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from pathlib import Path

import onnxruntime
import pytest

from korch_cli.core.artifact import LibraryEntry
from korch_cli.core.kernel import Kernel
from korch_cli.core.processor import FEATURES, Feature
from korch_cli.core.progress import Silent
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import ort_headers, registration_unit
from korch_cli.measure import missing_features
from korch_cli.toolchain import compile_units, find_compiler, link

TYPE = TensorType(DType.F32, (8,))
ENTRY = LibraryEntry(Kernel("k0", "d", "row", "", 1, 8, 1), (TYPE,), (TYPE,))
NOTHING = """#include <stdint.h>
extern "C" void k0(const void* const*, void* const*, int64_t, int64_t) {}
"""
PROBE = """#include "korch_processor.h"
extern "C" __attribute__((visibility("default"))) int probe(
    const char* name, uint32_t word, uint32_t part, int number, int bit) {
  return korch::has({name, word, part, number, bit});
}
"""
ON_ARM = platform.machine() != "x86_64"
HERE = [feature for feature in FEATURES if feature.macro.startswith("__ARM_") == ON_ARM]
"""What processors of this architecture may have."""


def built(folder: Path, units: dict[str, str], exports: Sequence[str] = ("RegisterCustomOps",)) -> Path:
    compiler = find_compiler().for_any_processor()
    objects = compile_units(compiler, units, ort_headers(), folder, jobs=1, progress=Silent())
    paths = [path for path in objects.values() if isinstance(path, Path)]
    assert len(paths) == len(units), objects
    link(compiler, paths, folder / "made.so", exports=exports)
    return folder / "made.so"


def registered(folder: Path, processor: str, features: Sequence[Feature]) -> None:
    unit = registration_unit("korch.p", [ENTRY], {}, processor=processor, features=features)
    library = built(folder, {"kernels": NOTHING, "registration": unit})
    assert processor.encode() in library.read_bytes()
    onnxruntime.SessionOptions().register_custom_ops_library(str(library))


def test_a_processor_that_lacks_something_is_refused(tmp_path: Path) -> None:
    names = missing_features(HERE)
    lacking = [feature for feature in HERE if feature.name in names]
    if not lacking:
        pytest.skip("this processor has everything")
    present = [feature for feature in HERE if feature.name not in names]
    with pytest.raises(Exception, match="without the library") as refused:
        registered(tmp_path, "x86-64-v4", [*present, *lacking[:1]])
    assert "built for x86-64-v4 processors" in str(refused.value)
    assert f"needs {lacking[0].name}," in str(refused.value)


def test_a_processor_that_has_everything_is_accepted(tmp_path: Path) -> None:
    registered(tmp_path, "native", find_compiler().features)


def test_what_is_asked_of_the_processor_is_what_the_system_says(tmp_path: Path) -> None:
    probe = ctypes.CDLL(str(built(tmp_path, {"probe": PROBE}, exports=["probe"]))).probe
    missing = missing_features(HERE)
    for feature in HERE:
        found = probe(feature.name.encode(), feature.word, feature.part, feature.register, feature.bit)
        assert found == (feature.name not in missing), feature.name
