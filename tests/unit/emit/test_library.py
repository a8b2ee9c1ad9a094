"""The text of a kernel library's registration: comments, many entries, sizes of chunks, equal bytes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from korch_cli.core.artifact import LibraryEntry
from korch_cli.core.kernel import Kernel
from korch_cli.core.progress import Silent
from korch_cli.core.types import DType, TensorType
from korch_cli.emit import ort_headers, registration_unit
from korch_cli.toolchain import compile_units, find_compiler, link

DOMAIN = "korch.3f0a12bc"
TYPE = TensorType(DType.F32, (3, 5))
ENTRY = LibraryEntry(Kernel("k0", "d", "row", "", 15, 8, 1), (TYPE,), (TYPE,))
CHUNK_BYTES, CHUNK_FLOPS = 64 << 10, 256 << 10


def built(folder: Path, count: int) -> Path:
    """A library of `count` kernels that do nothing."""
    entries = [replace(ENTRY, kernel=replace(ENTRY.kernel, name=f"k{i}")) for i in range(count)]
    body = "(const void* const*, void* const*, int64_t, int64_t) {}\n"
    kernels = "#include <stdint.h>\n" + "".join(f'extern "C" void {e.kernel.name}{body}' for e in entries)
    units = {"kernels": kernels, "registration": registration_unit(DOMAIN, entries, {})}
    compiler = find_compiler()
    objects = compile_units(compiler, units, ort_headers(), folder, jobs=2, progress=Silent())
    paths = [path for path in objects.values() if isinstance(path, Path)]
    assert len(paths) == 2, objects
    link(compiler, paths, folder / f"{folder.name}.so")
    return folder / f"{folder.name}.so"


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.text(st.sampled_from('ab \\?/*"\n\r\v\f\x1c\x85\u2028\0é'), max_size=200))
@example("a trigraph ??/")
def test_no_comment_ends_or_continues(comment: str) -> None:
    plain, said = (registration_unit(DOMAIN, [ENTRY], comments) for comments in ({}, {"k0": comment}))
    lines = re.split(r"[\n\r\v\f\x85\u2028\u2029]", said)
    code = [line for line in lines if not line.startswith("// ")]
    assert "\n".join(code) == plain
    assert not any(line.endswith("\\") or "??/" in line for line in lines)


@pytest.mark.parametrize(
    ("unit_bytes", "unit_flops", "grain"),
    [
        (CHUNK_BYTES, 1, 1),
        (CHUNK_BYTES - 1, 1, 2),
        (8, 1, CHUNK_BYTES // 8),
        (8, CHUNK_FLOPS // 4, 4),
        (0, 0, CHUNK_BYTES),
        (1 << 40, 1 << 50, 1),
    ],
)
def test_a_chunk_is_worth_a_thread_by_its_bytes_or_by_its_arithmetic(
    unit_bytes: int, unit_flops: int, grain: int
) -> None:
    kernel = replace(ENTRY.kernel, units=1 << 20, unit_bytes=unit_bytes, unit_flops=unit_flops)
    text = registration_unit(DOMAIN, [replace(ENTRY, kernel=kernel)], {})
    assert f", {1 << 20}, {grain}}};" in text


def test_many_kernels_register_and_equal_entries_make_equal_libraries(tmp_path: Path) -> None:
    made = []
    for name in ("one", "another"):
        (tmp_path / name).mkdir()
        made.append(built(tmp_path / name, 600))
    assert made[0].read_bytes() == made[1].read_bytes()
    assert str(tmp_path).encode() not in made[0].read_bytes()
    for _ in range(2):
        options = onnxruntime.SessionOptions()
        options.register_custom_ops_library(str(made[0]))
