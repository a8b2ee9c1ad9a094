"""Inputs for several models that are fed alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from korch_cli.core.errors import UsageError

if TYPE_CHECKING:
    from korch_cli.core.model import Bindings
    from korch_cli.core.types import Array


def draw_shared_inputs(
    paths: Sequence[Path], bindings: Bindings, *, seed: int, runs: int
) -> tuple[dict[str, Array], ...]:
    """Return sets of inputs for models of which some have static shapes and others symbolic ones.

    The first model whose inputs the bindings fit says what they look like: an optimised model has the numbers that its
    original was given with `--dim`, which names nothing in it any more.

    Raises:
        UsageError: the bindings fit none; the error is about the first model.
    """
    from korch_cli import verify  # onnx comes with it

    first: UsageError | None = None
    for path in paths:
        try:
            inputs = verify.bind_inputs(path, bindings)
        except UsageError as error:
            first = first or error
        else:
            return verify.draw_inputs(path, inputs, seed=seed, runs=runs)
    assert first is not None
    raise first
