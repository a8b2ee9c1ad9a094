"""`korch cache`: the store of what was measured, and the compiled kernels beside it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from korch_cli.cli.options import MODEL, format_flag, require_file, same_file
from korch_cli.cli.values import Size
from korch_cli.core.errors import ExitCode, UsageError
from korch_cli.core.storage import CacheRecord
from korch_cli.version import __version__

if TYPE_CHECKING:
    from korch_cli.measure import ProfileStore


@click.group()
def cache() -> None:
    """Look at, bound, empty or carry away what korch has measured before.

    The store lies in $KORCH_CACHE_DIR, else in korch in $XDG_CACHE_HOME or ~/.cache, and takes no more than
    $KORCH_CACHE_LIMIT (1GiB). Nothing in it is needed: without it, kernels are compiled and measured again.
    """


@cache.command()
@format_flag
def path(form: str) -> None:
    """Say where the store lies."""
    from korch_cli.measure import cache_limit, chosen_folder  # it needs numpy, which --help does not

    record = CacheRecord("path", str(chosen_folder()), cache_limit())
    if form == "json":
        _show(record, form)
    else:
        click.echo(record.folder)


@cache.command()
@format_flag
def stats(form: str) -> None:
    """Say what is in the store, and from which machines."""
    store, record = _opened("stats")
    with closing(store):
        _finish(store, record, form)


@cache.command()
@click.option(
    "--max-size",
    metavar="SIZE",
    type=Size(),
    default=None,
    show_default="$KORCH_CACHE_LIMIT, or 1GiB",
    help="What it may take, e.g. 300MiB.",
)
@format_flag
def prune(max_size: int | None, form: str) -> None:
    """Remove what was not used for the longest time."""
    store, record = _opened("prune")
    from korch_cli.measure import prune as prune_store

    with closing(store):
        limit_bytes = record.limit_bytes if max_size is None else max_size
        removed = prune_store(store, limit_bytes)
        if removed.busy:
            store.note("Another run of korch uses it; only compiled kernels that nobody used for a day could go.")
        done = replace(record, limit_bytes=limit_bytes, entries=removed.entries, files=removed.files)
        _finish(store, done, form)


@cache.command()
@format_flag
def clear(form: str) -> None:
    """Remove everything in the store."""
    store, record = _opened("clear")
    from korch_cli.measure import clear as clear_store

    with closing(store):
        removed = clear_store(store)
        _finish(store, replace(record, entries=removed.entries, files=removed.files), form)


@cache.command("export")
@click.argument("file", metavar="FILE", type=MODEL)
@format_flag
def export_entries(file: Path, form: str) -> None:
    """Write all that was measured to FILE, as lines of JSON."""
    require_file(file)
    store, record = _opened("export")
    from korch_cli.measure import export_store

    with closing(store):
        if file.name.startswith(store.path.name) and same_file(file.parent, store.folder):
            hint = "name a file outside of the store"
            raise UsageError("the entries would overwrite the store", where=str(file), hint=hint)
        written = export_store(store, file, __version__)
        _finish(store, replace(record, file=str(file), entries=written), form)


@cache.command("import")
@click.argument("file", metavar="FILE", type=MODEL)
@format_flag
def import_entries(file: Path, form: str) -> None:
    """Add what another korch exported to FILE.

    Figures are used only with the processor, number of threads, ONNX Runtime and compiler that they were measured with.
    Elsewhere they are kept, but nothing depends on them.
    """
    store, record = _opened("import")
    from korch_cli.measure import import_store
    from korch_cli.measure import prune as prune_store

    with closing(store):
        new, known = import_store(store, file)
        if prune_store(store, record.limit_bytes).entries:
            store.note("Not everything has room; KORCH_CACHE_LIMIT says how much may be kept.")
        _finish(store, replace(record, file=str(file), entries=new, known=known), form)


def _opened(action: str) -> tuple[ProfileStore, CacheRecord]:
    """Open the store. Raises MissingError."""
    from korch_cli.measure import ProfileStore, cache_limit, default_folder

    limit_bytes = cache_limit()
    folder = default_folder()
    return ProfileStore(folder), CacheRecord(action, str(folder), limit_bytes)


def _finish(store: ProfileStore, record: CacheRecord, form: str) -> None:
    from korch_cli.measure import content_of

    content = content_of(store)
    _show(replace(record, content=content, notes=tuple(store.notes)), form)


def _show(record: CacheRecord, form: str) -> None:
    from korch_cli.report import render_cache, to_json

    click.echo(to_json("cache", record, ExitCode.OK) if form == "json" else render_cache(record))
