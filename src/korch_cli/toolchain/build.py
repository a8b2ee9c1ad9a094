"""Compiling units in parallel, each once: objects are named after all that they depend on."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from korch_cli.core.errors import KorchError, MissingError
from korch_cli.core.progress import Progress
from korch_cli.toolchain.children import Children
from korch_cli.toolchain.compiler import Compiler, first_line
from korch_cli.toolchain.objects import is_there, keep, scratch_in


@dataclass(frozen=True, slots=True)
class BuildFailure:
    """A unit that does not compile.

    Attributes:
        name: of the unit.
        sentence: what went wrong.
        log: everything that the compiler said.
    """

    name: str
    sentence: str
    log: str


def compile_units(
    compiler: Compiler,
    units: Mapping[str, str],
    headers: Mapping[str, str],
    cache: Path,
    *,
    jobs: int,
    progress: Progress,
    timeout_s: float = 120.0,
) -> dict[str, Path | BuildFailure]:
    """Return an object file, or a failure, for each unit.

    Args:
        compiler: what compiles.
        units: C++ text by name.
        headers: files that the units may include, by name.
        cache: folder for objects; shared between processes and runs.
        jobs: compilers that run at the same time.
        progress: told of each unit that had to be compiled.
        timeout_s: seconds that one unit may take.

    Raises:
        MissingError: the folder cannot be written.
    """
    targets = {name: cache / f"{_key(compiler, text, headers)}.o" for name, text in units.items()}
    results: dict[str, Path | BuildFailure] = {name: path for name, path in targets.items() if is_there(path)}
    todo = [name for name in units if name not in results]
    if not todo:
        return results
    with scratch_in(cache) as scratch, Children() as children:
        work = Path(scratch)
        for name, text in headers.items():
            (work / name).write_text(text, encoding="utf-8")
        with ThreadPoolExecutor(max(1, jobs)) as pool:
            futures = {
                pool.submit(_compile, compiler, name, units[name], work, targets[name], timeout_s, children): name
                for name in todo
            }
            try:
                for done, future in enumerate(as_completed(futures), 1):
                    results[futures[future]] = future.result()
                    progress.step(done, len(todo), futures[future])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                children.kill()
                raise
    return {name: results[name] for name in units}


def link(
    compiler: Compiler, objects: Sequence[Path], output: Path, *, exports: Sequence[str] = ("RegisterCustomOps",)
) -> None:
    """Make a shared library of objects; equal objects give equal bytes.

    It exports the functions named `exports` alone, needs no C++ runtime, and stays loaded until the process ends.

    Raises:
        MissingError: the folder of `output` cannot be written.
        KorchError: the linker fails.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="link-", dir=output.parent)
    except OSError as error:
        where = str(output.parent)
        raise MissingError(f"the kernel library cannot be written: {error.strerror}", where=where) from error
    with folder as scratch:
        exported = Path(scratch) / "exported.map"
        exported.write_text(f"{{ global: {'; '.join(exports)}; local: *; }};\n", encoding="utf-8")
        made = Path(scratch) / "library.so"
        listed = Path(scratch) / "objects"
        listed.write_bytes(b"\n".join(map(_quoted, objects)))
        arguments = [
            *compiler.command,
            "-shared",
            "-nostdlib++" if "clang" in compiler.identity else "-nodefaultlibs",
            f"@{listed}",
            "-o",
            str(made),
            f"-Wl,--version-script={exported}",
            "-Wl,-z,nodelete",
            "-Wl,--build-id=none",
            "-Wl,--as-needed",
            "-Wl,--no-undefined",
            "-Wl,-s",
            "-lm",
            # Where dlopen is no part of the C library.
            "-ldl",
            "-lc",
            "-lgcc",
        ]
        done = subprocess.run(arguments, capture_output=True, check=False)
        if done.returncode != 0:
            hint = "if a file in the cache is damaged, korch cache clear removes it"
            sentence = f"the kernel library cannot be linked: {first_line(done.stderr.decode(errors='replace'))}"
            raise KorchError(sentence, where=output.name, hint=hint)
        made.replace(output)


def _quoted(path: Path) -> bytes:
    """Return a path as it is written in a file of arguments."""
    return b'"' + os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def _key(compiler: Compiler, text: str, headers: Mapping[str, str]) -> str:
    digest = hashlib.sha256(compiler.identity.encode())
    for part in (text, *(f"{name}\n{content}" for name, content in sorted(headers.items()))):
        digest.update(b"\0")
        digest.update(part.encode())
    return digest.hexdigest()


def _compile(
    compiler: Compiler, name: str, text: str, work: Path, target: Path, timeout_s: float, children: Children
) -> Path | BuildFailure:
    source, made = work / f"{target.stem}.cpp", work / f"{target.stem}.o"
    arguments = [*compiler.command, *compiler.flags, f"-frandom-seed={target.stem}", "-c", source.name, "-o", made.name]
    try:
        source.write_text(text, encoding="utf-8")
        code, log = children.run(arguments, work, timeout_s)
        if code != 0:
            return BuildFailure(name, first_line(log), log)
        keep(made, target)
    except subprocess.TimeoutExpired:
        return BuildFailure(name, f"compiling takes more than {timeout_s:.0f} s", "")
    except OSError as error:
        return BuildFailure(name, f"the object cannot be kept: {error.strerror}", "")
    return target
