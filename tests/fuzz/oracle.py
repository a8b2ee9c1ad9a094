"""What a model computes, and how far another correct program may be from it.

The reference is ONNX Runtime without optimisations. The tolerance is measured, not assumed: the model is run again,
node by node, and results on the way are moved by `precision.ULPS` units in the last place, up or down, in pairs of
runs with opposite signs; so are the operands of nodes that add up many numbers. What had both signs is zero in a last
run. Any correct program differs from the
reference by rounding errors of a few units at each node, so that an element of the output may move as far as it does in
these runs. Where a graph is ill-conditioned (a cancellation, a comparison of neighbours, a rounding to integers) the
runs disagree and the tolerance is wide, or the element is not judged at all; everywhere else it stays at a few units in
the last place, and wrong results do not pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from korch_cli.core.types import Array, DType
from tests.fuzz.precision import ACCUMULATING, ULPS, Noise, Signs, Zeros, differences
from tests.fuzz.running import Session, dtype_of, float_limits, node_model, reads
from tests.fuzz.undefined import joins_what_does_not_fit, undefined_tensors

_PAIRS = 4
_FACTOR = 4
_UNCERTAIN = 0.25
"""The relative tolerance beyond which a result may as well be infinite or no number."""


class NotJudged(Exception):  # noqa: N818 - a graph that nothing can be said of is no error
    """The model does not run on these inputs, or its shapes depend on rounding."""


@dataclass(frozen=True)
class Expectation:
    """What a model computes, and how exactly that is known.

    Attributes:
        outputs: by position.
        allowed: for each element the error that is allowed, infinite where it is not judged.
        unshaped: names of outputs whose shape is not certain.
    """

    outputs: tuple[Array, ...]
    allowed: tuple[Array, ...]
    unshaped: frozenset[str] = frozenset()

    @property
    def judged(self) -> tuple[int, int]:
        """How many elements are judged, and how many there are."""
        return sum(int(np.isfinite(a).sum()) for a in self.allowed), sum(a.size for a in self.allowed)

    @property
    def is_open(self) -> bool:
        """Whether there are elements and none is judged."""
        judged, elements = self.judged
        return elements > 0 and not judged


class Nodewise:
    """Runs a model node by node."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._fixed = {tensor.name: tensor for tensor in model.graph.initializer}
        self._weights = {name: numpy_helper.to_array(tensor) for name, tensor in self._fixed.items()}
        self._sessions: dict[int, Session] = {}

    def values(self, feeds: Mapping[str, Array], noise: Noise | Zeros | None = None) -> dict[str, Array]:
        """Return every tensor, with `noise` on the way if there is one.

        Raises:
            NotJudged: a node does not run on what it gets.
        """
        found = {**self._weights, **feeds}
        for position, node in enumerate(self._model.graph.node):
            operands = {name: found[name] for name in reads(node)}
            if noise is not None:
                operands = {name: noise.on_operand(node, name, array) for name, array in operands.items()}
            try:
                results = self._run(position, node, operands)
            except Exception as error:
                raise NotJudged(str(error)) from error
            names = [name for name in node.output if name]
            if noise is not None:
                results = [noise.on_result(node, n, a, operands) for n, a in zip(names, results, strict=True)]
            found |= zip(names, results, strict=True)
        return found

    def node_values(self, position: int, values: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs of one node of the graph on these tensors. Raises whatever ONNX Runtime raises."""
        node = self._model.graph.node[position]
        return dict(zip((name for name in node.output if name), self._run(position, node, values), strict=True))

    def _run(self, position: int, node: onnx.NodeProto, found: Mapping[str, Array]) -> list[Array]:
        # Weights that may be moved are fed; what may decide on shapes stays an initializer.
        moving = node.op_type in ACCUMULATING and node.op_type not in ("Resize", "Upsample")
        fixed = [n for n in reads(node) if n in self._fixed and not (moving and dtype_of(found[n]).is_float)]
        fed = {n: found[n] for n in reads(node) if n not in fixed}
        if position not in self._sessions:
            model = node_model(node, fed, [self._fixed[n] for n in fixed], self._model)
            self._sessions[position] = Session(model)
        return self._sessions[position].run(fed)


def expect(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Expectation:
    """Return what a model computes on these inputs and how exactly that is known.

    Raises:
        NotJudged: it does not run on them, should not, or its shapes depend on rounding.
    """
    try:
        outputs = Session(model).run(feeds)
    except Exception as error:
        raise NotJudged(str(error)) from error
    names = [info.name for info in model.graph.output]
    nodewise = Nodewise(model)
    # In a whole model ONNX Runtime keeps some float16 values in float32 between nodes, so that this may differ already.
    plain = nodewise.values(feeds)
    if joins_what_does_not_fit(model, plain):
        raise NotJudged("a Concat joins what does not fit")
    undefined = undefined_tensors(model, plain)
    spreads = [_spread(output, plain[name]) for name, output in zip(names, outputs, strict=True)]
    unshaped = undefined.intersection(names)
    signs = Signs()
    signs.note(plain)
    signs.note(differences(model, plain))

    def widen(noise: Noise | Zeros) -> None:
        moved = nodewise.values(feeds, noise)
        signs.note(moved)
        signs.note(differences(model, moved))
        for spread, name, output in zip(spreads, names, outputs, strict=True):
            np.maximum(spread, _spread(output, moved[name]), out=spread)
            if output.shape != moved[name].shape:
                unshaped.add(name)

    for pair in range(_PAIRS):
        for direction in (1.0, -1.0):
            # One pair moves everything the same way, so that what adds up does; the others cancel at random.
            widen(Noise(plain, np.random.default_rng(pair) if pair else None, direction))
    if uncertain := signs.uncertain():
        widen(Zeros(uncertain))
    allowed = [_allowed(a, s, n in undefined) for a, s, n in zip(outputs, spreads, names, strict=True)]
    return Expectation(tuple(outputs), tuple(allowed), frozenset(unshaped))


def difference(names: Sequence[str], got: Sequence[Array], expected: Expectation) -> str | None:
    """Return a sentence on the first output that is not as expected, None if all are."""
    for name, have, want, allowed in zip(names, got, expected.outputs, expected.allowed, strict=True):
        if (have.dtype, have.shape) != (want.dtype, want.shape):
            if name in expected.unshaped and have.dtype == want.dtype:
                continue
            return f"{name!r} is {have.dtype}{list(have.shape)} instead of {want.dtype}{list(want.shape)}"
        gap = _spread(want, have)
        # Where little is certain, the neighbourhood of an infinity may be.
        uncertain = ~np.isfinite(gap) & (allowed > _UNCERTAIN * np.abs(want)) if dtype_of(want).is_float else False
        wrong = (gap > allowed) & ~np.asarray(uncertain)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            return (
                f"{name!r} differs in {int(wrong.sum())} of {want.size} elements; at {list(at)} it is {have[at]!r} "
                f"instead of {want[at]!r}, which may be off by {allowed[at]:.3g}"
            )
    return None


def _spread(a: Array, b: Array) -> Array:
    """Return how far two arrays are apart: infinitely, where they are not numbers of one kind."""
    if a.shape != b.shape:
        return np.full(a.shape, np.inf)
    if not dtype_of(a).is_float:
        return np.where(a == b, 0.0, np.inf)
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where(np.isfinite(x) & np.isfinite(y), np.abs(x - y), np.inf)
    return np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, apart)


def _allowed(output: Array, spread: Array, undefined: bool) -> Array:
    dtype: DType = dtype_of(output)
    if undefined:
        return np.full(output.shape, np.inf)
    if not dtype.is_float:
        return spread
    limits = float_limits(dtype)
    size = np.abs(np.nan_to_num(output.astype(np.float64)))
    return _FACTOR * (spread + ULPS * limits.epsilon * size + limits.least)
