"""Writing files so that nothing half-written is ever seen: the side effects of `emit`."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from korch_cli.core.errors import MissingError, UsageError
from korch_cli.emit.external import copy_external, external_tensors


@contextmanager
def staging(folder: Path) -> Iterator[Path]:
    """Give a temporary folder inside `folder`, so that files can be renamed into place; it is removed in the end.

    Raises:
        MissingError: `folder` is no folder, or it cannot be written.
    """
    _check_folder(folder)
    try:
        made = tempfile.mkdtemp(prefix=".korch-", dir=folder)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield Path(made)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def save_model(proto: object, source_folder: Path, path: Path) -> None:
    """Write a model to `path`; data in other files is copied into one file beside it, `<name>.data`.

    Args:
        proto: an `onnx.ModelProto`, which is left as it is.
        source_folder: where its external data lies.
        path: the file to write; it and its data appear only when they are complete.

    Raises:
        ModelError: external data is missing, shorter than it says, or outside `source_folder`.
        MissingError: the file cannot be written.
    """
    assert isinstance(proto, onnx.ModelProto)
    _check_folder(path.parent)
    data = path.with_name(f"{path.name}.data")
    files = {data: data.with_name(f".{data.name}.partial")} if any(external_tensors(proto)) else {}
    files[path] = path.with_name(f".{path.name}.partial")
    try:
        written = proto
        if data in files:
            written = onnx.ModelProto()
            written.CopyFrom(proto)
            with files[data].open("wb") as out:
                copy_external(written, source_folder, data.name, out)
        files[path].write_bytes(written.SerializeToString(deterministic=True))
        for final, finished in files.items():
            finished.replace(final)
    except OSError as error:
        raise MissingError(f"the model cannot be written: {error.strerror}", where=str(path)) from error
    finally:
        for finished in files.values():
            finished.unlink(missing_ok=True)


def require_apart(source: Path, targets: Iterable[Path]) -> None:
    """Make sure that the files to write are new or regular ones, and that none holds data of the model that is read.

    A source that is no model has none; whoever loads it says so.

    Raises:
        UsageError: one of them is a folder, a device, a pipe or a socket, or holds such data.
    """
    there = [target for target in targets if target.exists()]
    for target in there:
        if not target.is_file():
            hint = "give OUT another name or another folder"
            raise UsageError("a file is to be written here, and this is none", where=str(target), hint=hint)
    if not there:
        return
    try:
        proto = _read(source)
    except (OSError, DecodeError):
        return
    locations = {entry.value for t in external_tensors(proto) for entry in t.external_data if entry.key == "location"}
    held = [path for location in locations if location and (path := source.parent / location).is_file()]
    for target in there:
        if any(path.samefile(target) for path in held):
            hint = "give OUT another name or another folder"
            raise UsageError("this file holds weights of IN and would be overwritten", where=str(target), hint=hint)


def _read(path: Path) -> onnx.ModelProto:
    # Whatever its name ends in: the package would take some endings for formats of text.
    return onnx.load_model(str(path), format="protobuf", load_external_data=False)


def copy_model(source: Path, target: Path) -> None:
    """Write the model in `source` to `target` unchanged: the same bytes, or with external data under a new name.

    Raises:
        ModelError: external data is missing, shorter than it says, or outside the model's folder.
        MissingError: the file cannot be written.
    """
    proto = _read(source)
    if any(external_tensors(proto)):
        save_model(proto, source.parent, target)
        return
    _check_folder(target.parent)
    temporary = target.with_name(f".{target.name}.partial")
    try:
        shutil.copyfile(source, temporary)
        temporary.replace(target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise MissingError(f"the model cannot be written: {error.strerror}", where=str(target)) from error


def write_set(files: Mapping[Path, Path]) -> None:
    """Move finished files into place: all of them, or none.

    A file that is replaced is kept beside the finished one until every file is in place.

    Args:
        files: from each final path to the file that is to be there, on the same file system; the last one, by rights
            the model, is moved last.

    Raises:
        MissingError: a file cannot be moved; what was there before is there again.
    """
    for final in files:
        _check_folder(final.parent)
        if final.exists() and not final.is_file():
            raise MissingError("what stands where a file is to be written is none", where=str(final))
    backups: dict[Path, Path] = {}
    placed: list[Path] = []
    try:
        for final, finished in files.items():
            with finished.open("rb") as file:
                os.fsync(file.fileno())
            if final.exists():
                backups[final] = finished.with_name(f".{finished.name}.before")
                shutil.copy2(final, backups[final])
        for final, finished in files.items():
            finished.replace(final)
            placed.append(final)
        for folder in dict.fromkeys(final.parent for final in files):
            _sync_folder(folder)
    except BaseException as error:
        _restore(placed, backups)
        if isinstance(error, OSError):
            raise MissingError(f"the output cannot be written: {error.strerror}", where=error.filename) from error
        raise
    finally:
        for backup in backups.values():
            with contextlib.suppress(OSError):
                backup.unlink(missing_ok=True)


def _restore(placed: list[Path], backups: Mapping[Path, Path]) -> None:
    """Undo what was moved; one file that cannot be restored does not keep the others from it."""
    for final in reversed(placed):
        with contextlib.suppress(OSError):
            if final in backups:
                backups[final].replace(final)
            else:
                final.unlink()


def _sync_folder(folder: Path) -> None:
    """Make renames durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        raise MissingError("the output folder does not exist", where=str(folder), hint=f"mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, None)


def _unwritable(folder: Path, error: OSError | None) -> MissingError:
    reason = f": {error.strerror}" if error else ""
    return MissingError(
        f"the output folder cannot be written{reason}", where=str(folder), hint="choose another with -o"
    )
