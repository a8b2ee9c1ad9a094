"""Finding a C++ compiler, and what a build depends on."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.errors import MissingError

_NATIVE = "-march=native"
_FLAGS = (
    "-std=c++17",
    "-O3",
    # Vectors are in the text. Some loops that are not, of integers and floats, GCC 12 vectorises wrongly.
    "-fno-tree-loop-vectorize",
    _NATIVE,
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=fast",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-fno-asynchronous-unwind-tables",
)
_SMOKE_TEST = """\
using vector = float __attribute__((vector_size(16)));
using whole = int __attribute__((vector_size(16)));
extern "C" vector test(vector a, whole b) {
  if constexpr (sizeof(a) == 16) a = __builtin_shufflevector(a, a, 3, 2, 1, 0);
  return a + __builtin_convertvector(b, vector);
}
"""
_SMOKE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler that works.

    Attributes:
        command: what to run.
        flags: for every unit of generated code.
        identity: version and target in one string; builds under different ones are kept apart.
    """

    command: tuple[str, ...]
    flags: tuple[str, ...]
    identity: str

    def portable(self) -> Compiler:
        """Return the compiler without instructions that only this machine may have, for what runs on another one."""
        return Compiler(self.command, tuple(f for f in self.flags if f != _NATIVE), f"{self.identity} portable")


def find_compiler(preference: str | None = None) -> Compiler:
    """Return the first compiler that works: the preferred one, else KORCH_CXX, else g++, clang++, c++, zig.

    Raises:
        MissingError: the one that was asked for does not work, or none does.
    """
    chosen = preference if preference is not None else os.environ.get("KORCH_CXX") or None
    if chosen is not None:
        command = tuple(shlex.split(chosen))
        problem = _problem(command)
        if problem is not None:
            raise MissingError(f"the C++ compiler {chosen!r} does not work: {problem}", hint=_HINT)
        return _described(command)
    problems = []
    for command in _known():
        problem = _problem(command)
        if problem is None:
            return _described(command)
        problems.append(f"{command[0]}: {problem}")
    tried = "; ".join(problems) or "g++, clang++ and c++ are not on the PATH"
    raise MissingError(f"no C++ compiler works ({tried})", hint=_HINT)


_HINT = "install one (on Debian or Ubuntu: apt install g++), or name one with --cxx or KORCH_CXX"


def _known() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [(name,) for name in ("g++", "clang++", "c++") if shutil.which(name)]
    if importlib.util.find_spec("ziglang") is not None:
        found.append((sys.executable, "-m", "ziglang", "c++"))
    return found


def _problem(command: tuple[str, ...]) -> str | None:
    """Compile a few lines that use what kernels use; return what goes wrong."""
    if not command:
        return "no program is named"
    with tempfile.TemporaryDirectory(prefix="korch-cxx-") as folder:
        made = Path(folder) / "test.o"
        source = Path(folder) / "test.cpp"
        source.write_text(_SMOKE_TEST, encoding="utf-8")
        arguments = [*command, *_FLAGS, "-c", str(source), "-o", str(made)]
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, timeout=_SMOKE_SECONDS, check=False)
        except FileNotFoundError:
            return "there is no such program"
        except PermissionError:
            return "it cannot be run"
        except subprocess.TimeoutExpired:
            return f"it takes more than {_SMOKE_SECONDS:.0f} s for a few lines"
        if done.returncode != 0:
            return first_line(done.stderr)
        return None if made.is_file() else "it reports success, but makes no object file"


def _described(command: tuple[str, ...]) -> Compiler:
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    # What -march=native stands for, and every other macro that the flags decide.
    macros = subprocess.run(
        [*command, *_FLAGS, "-dM", "-E", "-x", "c++", "/dev/null"], capture_output=True, text=True, check=False
    ).stdout
    parts = "\n".join([version, macros, *_FLAGS])
    name = version.splitlines()[0].strip() if version else command[0]
    return Compiler(command, _FLAGS, f"{name} {hashlib.sha256(parts.encode()).hexdigest()[:12]}")


def first_line(text: str) -> str:
    """Return the first line that tells of an error, else the first one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for sign in ("undefined reference", "error"):
        for line in lines:
            if sign in line.lower():
                return line
    return lines[0] if lines else "no message"
