from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from korch_cli.core.errors import KorchError, MissingError
from korch_cli.core.progress import Silent
from korch_cli.toolchain import BuildFailure, Compiler, compile_units, find_compiler, link
from korch_cli.toolchain.children import Children

EXPORT = 'extern "C" __attribute__((visibility("default")))'
ANSWER = f'#include "number.h"\n{EXPORT} int answer() {{ return KORCH_NUMBER; }}\n'
HEADERS = {"number.h": "#define KORCH_NUMBER 42\n"}


class Counter:
    """Counts the units that were compiled."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def stage(self, text: str) -> None:
        raise AssertionError(text)

    def step(self, done: int, total: int, text: str = "") -> None:
        assert 1 <= done <= total
        self.steps.append(text)


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return find_compiler()


def compiled(compiler: Compiler, text: str, cache: Path, headers: dict[str, str] | None = None) -> Path:
    built = compile_units(compiler, {"unit": text}, headers or {}, cache, jobs=1, progress=Silent())["unit"]
    assert isinstance(built, Path), built
    return built


def test_a_unit_is_compiled_once_and_again_when_anything_changes(compiler: Compiler, tmp_path: Path) -> None:
    counter = Counter()

    def build(text: str = ANSWER, headers: dict[str, str] = HEADERS, by: Compiler = compiler) -> Path:
        built = compile_units(by, {"unit": text}, headers, tmp_path, jobs=2, progress=counter)["unit"]
        assert isinstance(built, Path)
        return built

    first = build()
    assert build() == first
    assert len(counter.steps) == 1
    others = [
        build(ANSWER + "\n// another\n"),
        build(headers={"number.h": "#define KORCH_NUMBER 43\n"}),
        build(by=replace(compiler, identity="another")),
    ]
    assert len({first, *others}) == 4
    assert len(counter.steps) == 4


def test_objects_do_not_depend_on_where_they_were_made(compiler: Compiler, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    assert (
        compiled(compiler, ANSWER, one, HEADERS).read_bytes() == compiled(compiler, ANSWER, two, HEADERS).read_bytes()
    )


def test_a_failure_says_which_unit_and_why(compiler: Compiler, tmp_path: Path) -> None:
    units = {"good": ANSWER, "bad": "int f() { return missing; }\n"}
    built = compile_units(compiler, units, HEADERS, tmp_path, jobs=2, progress=Silent())
    failure = built["bad"]
    assert isinstance(built["good"], Path)
    assert isinstance(failure, BuildFailure)
    assert failure.name == "bad"
    assert "missing" in failure.sentence
    assert not list(tmp_path.glob("build-*"))


def test_a_compiler_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    script = tmp_path / "hangs"
    script.write_text("#!/bin/sh\nsleep 987 &\nwait\n", encoding="utf-8")
    script.chmod(0o755)
    start = time.monotonic()
    built = compile_units(
        Compiler((str(script),), (), "hangs"),
        {"unit": ANSWER},
        {},
        tmp_path / "cache",
        jobs=1,
        progress=Silent(),
        timeout_s=0.5,
    )["unit"]
    assert isinstance(built, BuildFailure)
    assert "more than" in built.sentence
    assert time.monotonic() - start < 60
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 987" not in running


def test_an_interruption_leaves_no_compiler_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "slow"
    script.write_text("#!/bin/sh\nsleep 986\n", encoding="utf-8")
    script.chmod(0o755)

    def interrupted(_futures: object) -> object:
        time.sleep(0.3)
        raise KeyboardInterrupt

    monkeypatch.setattr("korch_cli.toolchain.build.as_completed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compile_units(
            Compiler((str(script),), (), "slow"), {"a": "1", "b": "2"}, {}, tmp_path / "c", jobs=2, progress=Silent()
        )
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 986" not in running


def test_an_interruption_before_a_compiler_starts_lets_none_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "slow"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nsleep 985\n", encoding="utf-8")
    script.chmod(0o755)
    arrived, released = threading.Event(), threading.Event()
    write_text = Path.write_text

    def written_late(path: Path, data: str, encoding: str | None = None) -> int:
        arrived.set()
        assert released.wait(60)
        return write_text(path, data, encoding)

    def interrupted(_futures: object) -> object:
        assert arrived.wait(60)
        raise KeyboardInterrupt

    kill = Children.kill

    def killed(children: Children) -> None:
        kill(children)
        released.set()

    monkeypatch.setattr("korch_cli.toolchain.build.as_completed", interrupted)
    monkeypatch.setattr(Children, "kill", killed)
    monkeypatch.setattr(Path, "write_text", written_late)
    slow = Compiler((str(script),), (), "slow")
    with pytest.raises(KeyboardInterrupt):
        compile_units(slow, {"a": "1"}, {}, tmp_path / "c", jobs=1, progress=Silent(), timeout_s=5.0)
    assert not (tmp_path / "started").exists()


def test_what_a_failing_compiler_wrote_is_no_object(compiler: Compiler, tmp_path: Path) -> None:
    script = tmp_path / "half"
    script.write_text("#!/bin/sh\nfor last; do :; done\necho half > $last\nexit 1\n", encoding="utf-8")
    script.chmod(0o755)
    half = replace(compiler, command=(str(script),))
    cache = tmp_path / "cache"
    built = compile_units(half, {"unit": ANSWER}, HEADERS, cache, jobs=1, progress=Silent())["unit"]
    assert isinstance(built, BuildFailure)
    assert not list(cache.rglob("*.o"))
    assert compiled(compiler, ANSWER, cache, HEADERS).stat().st_size > len("half\n")


def test_a_folder_that_takes_no_library_is_explained(compiler: Compiler, tmp_path: Path) -> None:
    made = compiled(compiler, ANSWER, tmp_path, HEADERS)
    with pytest.raises(MissingError, match="cannot be written"):
        link(compiler, [made], made / "answer.so", exports=("answer",))


def test_a_cache_that_cannot_be_written_is_explained(compiler: Compiler, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(MissingError, match="cannot be written"):
        compiled(compiler, ANSWER, tmp_path / "file" / "cache", HEADERS)


def test_a_library_exports_what_was_asked_for_and_needs_no_cpp_runtime(compiler: Compiler, tmp_path: Path) -> None:
    hidden = compiled(compiler, f"{EXPORT} int secret() {{ return 7; }}\n", tmp_path)
    library = tmp_path / "answer.so"
    link(compiler, [compiled(compiler, ANSWER, tmp_path, HEADERS), hidden], library, exports=("answer",))
    assert ctypes.CDLL(str(library)).answer() == 42
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in symbols.splitlines()] == ["answer"]
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert "NODELETE" in dynamic
    needed = {line.split("[")[1].split("]")[0] for line in dynamic.splitlines() if "NEEDED" in line}
    assert needed <= {"libc.so.6", "libm.so.6"}


@pytest.mark.parametrize("name", ["a \"quoted' \\ name", os.fsdecode(b"not \xff utf-8")])
def test_objects_lie_in_folders_of_any_name(compiler: Compiler, tmp_path: Path, name: str) -> None:
    made = compiled(compiler, ANSWER, tmp_path / name, HEADERS)
    link(compiler, [made], tmp_path / "library.so", exports=["answer"])
    assert (tmp_path / "library.so").stat().st_size > 0


def test_folders_may_be_named_from_where_one_is(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = compiled(compiler, ANSWER, Path("cache"), HEADERS)
    link(compiler, [made], Path("library.so"), exports=["answer"])
    assert ctypes.CDLL(str(tmp_path / "library.so")).answer() == 42


def test_equal_objects_make_equal_libraries(compiler: Compiler, tmp_path: Path) -> None:
    made = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        link(compiler, [compiled(compiler, ANSWER, folder, HEADERS)], folder / f"{name}.so", exports=("answer",))
        made.append((folder / f"{name}.so").read_bytes())
    assert made[0] == made[1]


def test_what_is_undefined_stops_the_linker(compiler: Compiler, tmp_path: Path) -> None:
    needs = compiled(compiler, f'extern "C" int elsewhere();\n{EXPORT} int f() {{ return elsewhere(); }}\n', tmp_path)
    with pytest.raises(KorchError, match="elsewhere"):
        link(compiler, [needs], tmp_path / "broken.so", exports=("f",))
    assert not (tmp_path / "broken.so").exists()


def test_an_object_that_is_used_again_counts_as_new(compiler: Compiler, tmp_path: Path) -> None:
    built = compiled(compiler, ANSWER, tmp_path, HEADERS)
    os.utime(built, times=(1e9, 1e9))
    assert compiled(compiler, ANSWER, tmp_path, HEADERS) == built
    assert time.time() - built.stat().st_mtime < 600


def test_an_object_that_cannot_be_kept_is_a_failure(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    built = compile_units(compiler, {"unit": ANSWER}, HEADERS, tmp_path, jobs=1, progress=Silent())["unit"]
    assert isinstance(built, BuildFailure)
    assert "No space left" in built.sentence
    assert list(tmp_path.iterdir()) == []
