from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest

from korch_cli.core.errors import ExitCode, MissingError
from korch_cli.toolchain import find_compiler
from tests.compilers import CLANG


def script(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{content}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_first_compiler_that_works_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KORCH_CXX", raising=False)
    compiler = find_compiler()
    assert "-O3" in compiler.flags
    assert "-ffast-math" not in compiler.flags
    assert compiler == find_compiler(compiler.command[0])


def test_without_any_compiler_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KORCH_CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingError, match="not on the PATH") as failed:
        find_compiler()
    assert failed.value.exit_code == ExitCode.ENVIRONMENT
    assert "apt install g++" in str(failed.value.hint)


@pytest.mark.parametrize("by_environment", [False, True])
def test_a_named_compiler_that_fails_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_environment: bool
) -> None:
    broken = script(tmp_path, "broken", "echo 'fatal error: no licence' >&2; exit 1")
    monkeypatch.setenv("KORCH_CXX", str(broken) if by_environment else "g++")
    with pytest.raises(MissingError, match="fatal error: no licence"):
        find_compiler(None if by_environment else str(broken))


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="there is no such program"):
        find_compiler(str(tmp_path / "nothing"))


def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_bytes(b"\x00\x01 no program")
    rubbish.chmod(0o755)
    for command in (rubbish, rubbish / "below", tmp_path):
        with pytest.raises(MissingError, match="it cannot be run"):
            find_compiler(str(command))
    with pytest.raises(MissingError, match="is no command"):
        find_compiler("g++ 'never closed")


def test_what_a_compiler_says_need_not_be_utf_8(tmp_path: Path) -> None:
    broken = script(tmp_path, "broken", r"printf 'error: \377\376 kein Platz\n' >&2; exit 1")
    with pytest.raises(MissingError, match="kein Platz"):
        find_compiler(str(broken))
    working = " ".join(find_compiler().command)
    named = script(
        tmp_path, "named", f"""[ "$1" = --version ] && {{ printf 'Übersetzer \\374\\n'; exit; }}; {working} "$@" """
    )
    assert "bersetzer" in find_compiler(str(named)).identity


@pytest.mark.parametrize(("name", "sentence"), [("true", "makes no object file"), ("", "no program is named")])
def test_a_program_that_is_no_compiler_is_not_believed(name: str, sentence: str) -> None:
    with pytest.raises(MissingError, match=sentence):
        find_compiler(name)


def test_the_next_compiler_is_tried_when_one_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KORCH_CXX", raising=False)
    working = find_compiler().command
    folder = tmp_path / "bin"
    folder.mkdir()
    script(folder, "g++", "exit 1")
    script(folder, "c++", f'PATH=/usr/bin:/bin exec {" ".join(working)} "$@"')
    monkeypatch.setenv("PATH", str(folder))
    assert find_compiler().command == ("c++",)


def test_clang_and_zig_know_the_flags(tmp_path: Path) -> None:
    # Zig is clang, but has names of its own for processors.
    for processor in ("native", "x86-64-v3") if platform.machine() == "x86_64" else ("native",):
        compiler = find_compiler(CLANG, processor)
        assert compiler.processor == processor
        assert "clang" in compiler.identity
        (tmp_path / "nothing.cpp").touch()
        asked = [*compiler.command, *compiler.flags, "-Werror", "-###", "-c", str(tmp_path / "nothing.cpp")]
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        assert "-vectorize-slp" in done.stderr
        assert "-vectorize-loops" not in done.stderr


def test_the_identity_depends_on_the_target(tmp_path: Path) -> None:
    plain = find_compiler("g++")
    other = find_compiler("g++ -DKORCH_OTHER_TARGET")
    assert plain.identity != other.identity
