"""What models are fed with: arrays from a file, and for several models the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from korch_cli.core.errors import UsageError

if TYPE_CHECKING:
    from korch_cli.core.model import Bindings
    from korch_cli.core.types import Array


def read_inputs(path: Path | None, bindings: Bindings) -> tuple[dict[str, Array], Bindings]:
    """Return the arrays in a .npz file by name, and the bindings with their shapes where `--shape` says nothing.

    Raises:
        UsageError: the file is not there, or is no archive of arrays.
    """
    import numpy as np

    from korch_cli.core.model import Bindings as Bound

    if path is None:
        return {}, bindings
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError("a member holds no array, of which numpy gives the bytes")
    except Exception as error:  # numpy, zipfile and zlib have one of their own for every kind of damage
        hint = "write one with: numpy.savez(path, input_name=array)"
        raise UsageError("the inputs cannot be read: this is no .npz file", where=str(path), hint=hint) from error
    return arrays, Bound(bindings.dims, {**{name: a.shape for name, a in arrays.items()}, **bindings.shapes})


def draw_shared_inputs(
    paths: Sequence[Path], bindings: Bindings, *, seed: int, runs: int, given: Mapping[str, Array] | None = None
) -> tuple[dict[str, Array], ...]:
    """Return sets of inputs for models of which some have static shapes and others symbolic ones.

    The first model whose inputs the bindings fit says what they look like: an optimised model has the numbers that its
    original was given with `--dim`, which names nothing in it any more.

    Raises:
        UsageError: a model cannot be opened, or the bindings fit none; then the error is about the first model.
        ModelError: a file holds no ONNX model, or an input of one is no tensor of a type that korch knows.
    """
    from korch_cli import verify  # onnx comes with it

    for path in paths:
        verify.model_inputs(path)
    first: UsageError | None = None
    for path in paths:
        try:
            inputs = verify.bind_inputs(path, bindings)
        except UsageError as error:
            first = first or error
        else:
            return verify.draw_inputs(path, inputs, seed=seed, runs=runs, given=given)
    assert first is not None
    raise first
