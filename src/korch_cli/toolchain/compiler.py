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
from dataclasses import dataclass, replace
from pathlib import Path

from korch_cli.core.errors import MissingError
from korch_cli.core.processor import NATIVE, Feature, needed_features

_FLAGS = (
    "-std=c++17",
    "-O3",
    # Vectors are in the text. Some loops that are not, of integers and floats, GCC 12 vectorises wrongly.
    # Named so that GCC, clang and zig all know them: the first alone would stop that of straight lines too.
    "-fno-tree-vectorize",
    "-ftree-slp-vectorize",
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
_OLDEST = {"__x86_64__": "x86-64", "__aarch64__": "armv8-a"}
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
        processor: what the flags make code for, one of `core.processor.PROCESSORS`.
        features: what the code may need of the processor.
        oldest: the name of the processor whose code all processors of this architecture run; "" if it is not known.
    """

    command: tuple[str, ...]
    flags: tuple[str, ...]
    identity: str
    processor: str = NATIVE
    features: tuple[Feature, ...] = ()
    oldest: str = ""

    def for_any_processor(self) -> Compiler:
        """Return the same compiler for code that runs on every processor of the architecture."""
        if not self.oldest:
            return self
        flags = tuple(flag for flag in self.flags if not flag.startswith("-march="))
        identity = f"{self.identity}, any processor"
        return replace(self, flags=(*flags, f"-march={self.oldest}"), identity=identity, features=())


def find_compiler(preference: str | None = None, processor: str = NATIVE) -> Compiler:
    """Return the first compiler that works: the preferred one, else KORCH_CXX, else g++, clang++, c++, zig.

    Args:
        preference: a command.
        processor: what to make code for, one of `core.processor.PROCESSORS`.

    Raises:
        MissingError: the one that was asked for does not work, or none does.
    """
    chosen = preference if preference is not None else os.environ.get("KORCH_CXX") or None
    target, hint = ("", _HINT) if processor == NATIVE else (f" for {processor}", f"{_HINT}; or leave out --cpu")
    if chosen is not None:
        try:
            command = tuple(shlex.split(chosen))
        except ValueError as error:
            raise MissingError(f"the C++ compiler {chosen!r} is no command: {error}", hint=_HINT) from error
        problem = _problem(command, processor)
        if problem is not None:
            raise MissingError(f"the C++ compiler {chosen!r} does not work{target}: {problem}", hint=hint)
        return _described(command, processor)
    problems = []
    for command in _known():
        problem = _problem(command, processor)
        if problem is None:
            return _described(command, processor)
        problems.append(f"{command[0]}: {problem}")
    tried = "; ".join(problems) or "g++, clang++ and c++ are not on the PATH"
    raise MissingError(f"no C++ compiler works{target} ({tried})", hint=hint)


_HINT = "install one (on Debian or Ubuntu: apt install g++), or name one with --cxx or KORCH_CXX"


def _known() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = [(name,) for name in ("g++", "clang++", "c++") if shutil.which(name)]
    if importlib.util.find_spec("ziglang") is not None:
        found.append((sys.executable, "-m", "ziglang", "c++"))
    return found


def _flags(command: tuple[str, ...], processor: str) -> tuple[str, ...]:
    # Zig has names of its own for processors.
    return (*_FLAGS, f"-march={processor.replace('-', '_') if _is_zig(command) else processor}")


def _is_zig(command: tuple[str, ...]) -> bool:
    return any(Path(word).name in ("zig", "ziglang") for word in command)


def _problem(command: tuple[str, ...], processor: str) -> str | None:
    """Compile a few lines that use what kernels use; return what goes wrong."""
    if not command:
        return "no program is named"
    with tempfile.TemporaryDirectory(prefix="korch-cxx-") as folder:
        made = Path(folder) / "test.o"
        source = Path(folder) / "test.cpp"
        source.write_text(_SMOKE_TEST, encoding="utf-8")
        arguments = [*command, *_flags(command, processor), "-c", str(source), "-o", str(made)]
        try:
            done = subprocess.run(arguments, capture_output=True, timeout=_SMOKE_SECONDS, check=False)
        except FileNotFoundError:
            return "there is no such program"
        except OSError as error:
            return f"it cannot be run: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"it takes more than {_SMOKE_SECONDS:.0f} s for a few lines"
        if done.returncode != 0:
            return first_line(done.stderr.decode(errors="replace"))
        return None if made.is_file() else "it reports success, but makes no object file"


def _described(command: tuple[str, ...], processor: str) -> Compiler:
    flags = _flags(command, processor)
    version = _said([*command, "--version"])
    # What -march stands for, and every other macro that the flags decide.
    macros = _said([*command, *flags, "-dM", "-E", "-x", "c++", "/dev/null"])
    digest = hashlib.sha256("\n".join([version, macros, *flags]).encode()).hexdigest()[:12]
    name = version.splitlines()[0].strip() if version else command[0]
    target = "" if processor == NATIVE else f" for {processor}"
    defined = frozenset(line.split()[1] for line in macros.splitlines() if line.startswith("#define "))
    oldest = next((name for macro, name in _OLDEST.items() if macro in defined), "")
    if oldest and _is_zig(command):
        oldest = oldest.replace("-", "_") if oldest.startswith("x86") else "generic"
    return Compiler(command, flags, f"{name}{target} {digest}", processor, needed_features(defined), oldest)


def _said(arguments: list[str]) -> str:
    """Return what a program writes to stdout; compilers write in the language and the encoding of the user."""
    return subprocess.run(arguments, capture_output=True, check=False).stdout.decode(errors="replace")


def first_line(text: str) -> str:
    """Return the first line that tells of an error, else the first one."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for sign in ("undefined reference", "error"):
        for line in lines:
            if sign in line.lower():
                return line
    return lines[0] if lines else "no message"
