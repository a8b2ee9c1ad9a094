"""Rows of the survival suite as files: every variant written, planned with forced fusion, and built, many at a time."""

from __future__ import annotations

import fcntl
import json
import shutil
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from survival_row import ROWS, SECTIONS, Error, Row

from korch_cli.core.model import Bindings
from korch_cli.pipeline import Fusion, build_fusions, plan_fusion
from korch_cli.toolchain import find_compiler

_LIBRARY, _RESULTS = "kernels.so", "results.json"


@dataclass(frozen=True)
class Fused:
    """One variant of a row.

    Attributes:
        row: the row.
        source: its model, as it was written.
        feeds: what the model is fed in this variant.
        output: the model that korch made of it.
        kernels: how many generated kernels it has.
        failure: what went wrong before there was an output.
    """

    row: Row
    source: Path
    feeds: Mapping[str, Any]
    output: Path
    kernels: int = 0
    failure: str = ""


def variants_of(row: Row) -> list[str]:
    """Return the variants in which a row differs: nothing can be frozen where all is data."""
    if isinstance(row.expectation, Error):
        return []
    return [v for v in row.variants if v != "frozen" or _frozen_names(row)]


def write(row: Row, variant: str, folder: Path) -> tuple[Path, Bindings, dict[str, Any]]:
    """Write a variant of a row's model, and the files beside it; return its path, what binds it, and its feeds."""
    folder.mkdir(parents=True)
    for name, content in row.files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            place.write_bytes(content)
        elif content.hard:
            place.hardlink_to(folder / content.target)
        else:
            place.symlink_to(content.target)
    path, feeds = _source(folder), feeds_of(row, variant)
    if isinstance(row.model, bytes):
        path.write_bytes(row.model)
        return path, Bindings({}, {}), feeds
    proto = onnx.ModelProto.FromString(row.model.SerializeToString())
    if variant == "frozen":
        for name in _frozen_names(row):
            _freeze(proto, name, np.asarray(row.feeds[name]))
    bindings = _make_symbolic(proto, feeds) if variant == "symbolic" else Bindings({}, _open_shapes(proto, feeds))
    path.write_bytes(proto.SerializeToString())
    return path, bindings, feeds


def fuse(names: Sequence[str], folder: Path, jobs: int) -> None:
    """Fuse whatever can be fused in all variants of these rows, into one library; `folder` keeps what comes of it."""
    plans: dict[Path, Fusion] = {}
    failures: dict[str, str] = {}
    for name in names:
        row = ROWS[name]()
        for variant in variants_of(row):
            place = _place(folder, name, variant)
            source, bindings, _ = write(row, variant, place)
            _output(place).parent.mkdir()
            try:
                plans[place] = plan_fusion(source, bindings)
            except Exception:  # one row must not take the others with it
                failures[str(place)] = traceback.format_exc()
    outputs = [_output(place) for place in plans]
    build_fusions(list(plans.values()), outputs, folder / _LIBRARY, find_compiler(None), folder / "objects", jobs)
    kernels = {str(place): fusion.kernels for place, fusion in plans.items()}
    (folder / _RESULTS).write_text(json.dumps([kernels, failures]), encoding="utf-8")


def fused_once(section: str, folder: Path) -> Path:
    """Fuse a section's rows, unless another process of the same test run has done it; return the folder of it all."""
    with (folder / f"{section}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / section / _RESULTS).exists():
            shutil.rmtree(folder / section, ignore_errors=True)
            fuse(SECTIONS[section], folder / section, jobs=2)
    return folder / section


def fused(folder: Path, name: str, variant: str) -> tuple[Fused, Path]:
    """Return what came of a variant of a row, and the library that it runs with."""
    row, place = ROWS[name](), _place(folder, name, variant)
    kernels, failures = json.loads((folder / _RESULTS).read_text(encoding="utf-8"))
    failure, count = failures.get(str(place), ""), kernels.get(str(place), 0)
    return Fused(row, _source(place), feeds_of(row, variant), _output(place), count, failure), folder / _LIBRARY


def feeds_of(row: Row, variant: str) -> dict[str, Any]:
    """Return what a variant of a row is fed."""
    frozen = _frozen_names(row) if variant == "frozen" else []
    kept = {name: fed for name, fed in row.feeds.items() if name not in frozen}
    return {n: f if f is None or isinstance(f, list) else np.asarray(f) for n, f in kept.items()}


def _place(folder: Path, name: str, variant: str) -> Path:
    return folder / name / variant.replace(" ", "_")


def _source(place: Path) -> Path:
    return place / "in.onnx"


def _output(place: Path) -> Path:
    return place / "out" / "fast.onnx"


def _frozen_names(row: Row) -> list[str]:
    data = row.data or tuple(row.feeds)[:1]
    return [name for name, fed in row.feeds.items() if name not in data and not isinstance(fed, list)]


def _freeze(proto: onnx.ModelProto, name: str, array: Any) -> None:
    """Make an input an initializer; before IR version 4 it stays an input too."""
    graph = proto.graph
    if proto.ir_version >= 4:
        kept = [info for info in graph.input if info.name != name]
        del graph.input[:]
        graph.input.extend(kept)
    if all(tensor.name != name for tensor in graph.initializer):
        graph.initializer.append(numpy_helper.from_array(array, name))


def _make_symbolic(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> Bindings:
    """Forget all extents; those of every second input get names."""
    graph = proto.graph
    del graph.value_info[:]
    defaults = {tensor.name for tensor in graph.initializer}
    fed = [i for i in graph.input if i.name in feeds and i.name not in defaults and i.type.HasField("tensor_type")]
    dims, shapes = {}, {}
    for index, info in enumerate(fed):
        shape = feeds[info.name].shape
        named = index % 2 == 0 and 0 not in shape and info.type.tensor_type.HasField("shape")
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            dim.Clear()
            if named:
                dim.dim_param = f"{info.name}_{axis}"
                dims[dim.dim_param] = shape[axis]
        if not named:
            shapes[info.name] = shape
    for info in graph.output:
        for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
            dim.Clear()
    return Bindings(dims, shapes)


def _open_shapes(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs that do not state them."""
    found = {}
    for info in proto.graph.input:
        tensor = info.type.tensor_type
        open_ = not tensor.HasField("shape") or any(d.dim_value < 1 for d in tensor.shape.dim)
        if info.type.HasField("tensor_type") and open_ and info.name in feeds:
            found[info.name] = feeds[info.name].shape
    return found
