"""Flags that several commands share, and checks of the files they name."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from korch_cli.cli.values import Architectures, Dimension, Number, Shape
from korch_cli.core.errors import MissingError, ModelError, UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])

MODEL = click.Path(path_type=Path)
"""A model's path. Whether the file is there is checked later, because that is not an error of usage."""


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def shape_flags(command: _Command) -> _Command:
    """Add `--dim` and `--shape`, which a command gets as `dims` and `shapes`."""
    command = click.option(
        "--shape",
        "shapes",
        type=Shape(),
        multiple=True,
        help="Shape of an input, e.g. x=1x3x48x320. May be repeated.",
    )(command)
    return click.option(
        "--dim",
        "dims",
        type=Dimension(),
        multiple=True,
        help="Extent of a symbolic dimension, e.g. batch=1. May be repeated.",
    )(command)


def target_flag(command: _Command) -> _Command:
    """Add `--target`."""
    text = "Where models run: on this machine's processor, or on an NVIDIA GPU."
    return click.option("--target", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help=text)(
        command
    )


def provider_of(target: str) -> str:
    """Return what sessions for a target run on.

    Raises:
        MissingError: ONNX Runtime is missing, or the target is a GPU and there is none.
    """
    from korch_cli import verify  # onnx comes with it

    if target == "cuda":
        verify.require_cuda()
        return verify.CUDA_PROVIDER
    verify.require_onnxruntime()
    return verify.CPU_PROVIDER


def cuda_flags(command: _Command) -> _Command:
    """Add `--arch` and `--gpu`, of which a command gets the first as `archs`."""
    command = click.option(
        "--gpu",
        metavar="NAME",
        default=None,
        show_default="one of the first architecture",
        help="With --target cuda: the GPU that times are estimated for, e.g. H100-SXM.",
    )(command)
    return click.option(
        "--arch",
        "archs",
        type=Architectures(),
        default=(),
        show_default="all usual ones",
        help="With --target cuda: architectures to compile for, e.g. sm_90,sm_80.",
    )(command)


def threads_flag(command: _Command) -> _Command:
    """Add `--threads`."""
    return click.option(
        "--threads",
        type=click.IntRange(min=1),
        default=processors,
        show_default="the processors of this process",
        help="Threads that a model runs with.",
    )(command)


def seed_flag(command: _Command) -> _Command:
    """Add `--seed`."""
    return click.option(
        "--seed", type=click.IntRange(min=0), default=0, help="Seed of the random inputs that models are fed with."
    )(command)


def inputs_flag(command: _Command) -> _Command:
    """Add `--inputs`."""
    text = "Feed the arrays of this .npz file instead of random ones; they also say the shapes of their inputs."
    return click.option("--inputs", metavar="FILE", type=MODEL, default=None, help=text)(command)


def tolerance_flags(command: _Command) -> _Command:
    """Add `--rtol` and `--atol`."""
    positive = Number(min=0)
    command = click.option("--atol", type=positive, default=1e-5, help="Absolute tolerance of outputs.")(command)
    return click.option("--rtol", type=positive, default=1e-4, help="Relative tolerance of outputs.")(command)


def format_flag(command: _Command) -> _Command:
    """Add `--format`, which a command gets as `form`."""
    return click.option(
        "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Form of the result on stdout."
    )(command)


def kernel_size_flag(command: _Command) -> _Command:
    """Add `--max-kernel-size`."""
    return click.option(
        "--max-kernel-size", type=click.IntRange(min=1), default=16, help="Primitives in one generated kernel."
    )(command)


def report_flag(command: _Command) -> _Command:
    """Add `--report`."""
    return click.option("--report", type=MODEL, default=None, help="Also write the result as JSON to this file.")(
        command
    )


def quiet_flag(command: _Command) -> _Command:
    """Add `-q`."""
    return click.option("-q", "--quiet", is_flag=True, help="No progress on stderr.")(command)


def require_model(path: Path) -> None:
    """Raise ModelError unless `path` is a file that can be read."""
    if not path.exists():
        raise ModelError("there is no such file", where=str(path))
    if not path.is_file():
        raise ModelError("this is not a file", where=str(path), hint="name the .onnx file itself")
    if not os.access(path, os.R_OK):
        raise ModelError("this file may not be read", where=str(path))


def require_file(path: Path) -> None:
    """Raise an error unless a file can be written to `path`.

    Raises:
        UsageError: it is a folder, or a device, pipe or socket, which a finished file would replace.
        MissingError: its folder is not there or takes no files.
    """
    if path.is_dir():
        raise UsageError("this is a folder; a file is to be written", where=str(path), hint="add a file name")
    if (path.exists() and not path.is_file()) or _among_devices(path):
        hint = "name a file that is new or that may be replaced"
        raise UsageError("this is a device, a pipe or a socket; a file is to be written", where=str(path), hint=hint)
    require_folder(path)


def require_report(report: Path | None, *files: Path) -> None:
    """Raise an error if the report that is asked for would overwrite one of these files, or cannot be written.

    Raises:
        UsageError: it is one of the files, or a folder.
        MissingError: its folder is not there or takes no files.
    """
    if report is None:
        return
    if any(same_file(report, file) for file in files):
        hint = "give it another name"
        raise UsageError("the report would overwrite what is read or written", where=str(report), hint=hint)
    if not _is_stream(report):
        require_file(report)


def spare_weights(model: Path, *targets: Path | None) -> None:
    """Raise UsageError if one of the files to write holds weights of this model, which lie beside it."""
    from korch_cli.emit import require_apart  # onnx comes with it

    require_apart(model, [path for path in targets if path is not None and path.is_file()])


def write_report(document: str, report: Path | None) -> None:
    """Write a document to the file of `--report`, if there is one: all of it or nothing.

    A device or a pipe, say /dev/stderr, is written to as it is.

    Raises:
        MissingError: it cannot be written.
    """
    if report is None:
        return
    from korch_cli.emit import staging  # onnx comes with it

    text = document + "\n"
    try:
        if _is_stream(report):
            with report.open("w", encoding="utf-8") as out:
                out.write(text)
            return
        with staging(report.parent) as folder:
            finished = folder / report.name
            finished.write_text(text, encoding="utf-8")
            finished.replace(report)
    except OSError as error:
        reason = error.strerror or str(error)
        raise MissingError(f"the report cannot be written: {reason}", where=str(report)) from error


def _is_stream(path: Path) -> bool:
    return path.is_char_device() or path.is_fifo() or (_among_devices(path) and path.exists())


def _among_devices(path: Path) -> bool:
    """Whether the path is an entry of /dev, where /dev/stdout leads to a regular file if that is what stdout is."""
    return path.parent.resolve() == Path("/dev")


def same_file(first: Path, second: Path) -> bool:
    """Whether two paths lead to one file, which need not be there yet."""
    if first.exists() and second.exists():
        return first.samefile(second)
    return first.resolve() == second.resolve()


def require_folder(path: Path) -> None:
    """Raise MissingError unless the folder that `path` would lie in exists and takes files."""
    folder = path.parent
    if not folder.is_dir():
        raise MissingError("the output folder does not exist", where=str(folder), hint=f"mkdir -p '{folder}'")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "choose another folder, or change its permissions"
        raise MissingError(f"the output folder takes no files: {reason}", where=str(folder), hint=hint) from error
