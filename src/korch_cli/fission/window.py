"""The geometry of sliding windows, which pooling and convolution share."""

from __future__ import annotations

from dataclasses import dataclass

from korch_cli.core.errors import Refusal
from korch_cli.fission.view import OperatorView


@dataclass(frozen=True, slots=True)
class Window:
    """A window's extents over the spatial axes, how it moves, the padding, and the number of its positions."""

    extents: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    positions: tuple[int, ...]


def read_window(
    op: OperatorView, spatial: tuple[int, ...], extents: tuple[int, ...], *, rounds: bool = False
) -> Window:
    """Read strides, dilations and padding of an operator over axes of extents `spatial`; `ceil_mode` if it `rounds`.

    Raises:
        Refusal: the attributes do not fit together, the padding is negative, or runtimes place the windows otherwise
            than the definition does.
    """
    rank = len(spatial)
    ones = (1,) * rank
    strides, dilations = op.integers("strides") or ones, op.integers("dilations") or ones
    pads, auto_pad = op.integers("pads"), op.text("auto_pad", "NOTSET")
    ceiling = rounds and op.integer("ceil_mode", 0) != 0
    if not len(extents) == len(strides) == len(dilations) == rank >= 1 or min(extents + strides + dilations) < 1:
        raise Refusal("its window does not fit the spatial axes")
    if pads is not None and (len(pads) != 2 * rank or min(pads) < 0):
        raise Refusal("its padding does not fit the spatial axes")
    if pads is not None and any(pads) and auto_pad != "NOTSET":
        raise Refusal("it has both pads and auto_pad")
    spans = tuple(d * (e - 1) + 1 for d, e in zip(dilations, extents, strict=True))
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        if rounds and max(dilations) > 1:
            raise Refusal("runtimes disagree on how it pads a dilated window")
        positions = tuple(-(-extent // stride) for extent, stride in zip(spatial, strides, strict=True))
        before, after = _same_padding(spatial, spans, strides, lower=auto_pad == "SAME_LOWER")
    elif auto_pad in ("NOTSET", "VALID"):
        before, after = (pads[:rank], pads[rank:]) if pads is not None else ((0,) * rank, (0,) * rank)
        positions = tuple(map(_positions, spatial, spans, strides, before, after, [ceiling] * rank))
    else:
        raise Refusal(f"auto_pad {auto_pad!r} is not known")
    if min(positions) < 1:
        raise Refusal("its window is larger than the padded operand")
    return Window(extents, strides, dilations, before, after, positions)


def _same_padding(
    spatial: tuple[int, ...], spans: tuple[int, ...], strides: tuple[int, ...], *, lower: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the padding that gives ceil(extent / stride) positions; what is odd goes after, or before if `lower`."""
    totals = [
        (-(-extent // stride) - 1) * stride + span - extent
        for extent, span, stride in zip(spatial, spans, strides, strict=True)
    ]
    if min(totals) < -1:
        raise Refusal("its windows leave gaps, and runtimes disagree on where")
    totals = [max(0, total) for total in totals]
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (large, small) if lower else (small, large)


def _positions(extent: int, span: int, stride: int, before: int, after: int, ceiling: bool) -> int:
    room = extent + before + after - span
    if not ceiling:
        return room // stride + 1
    count = -(-room // stride) + 1
    # The last window has to begin in the operand or in the padding before it.
    return count - 1 if (count - 1) * stride >= extent + before else count


@dataclass(frozen=True, slots=True)
class Spread:
    """How a window spreads elements over a result, what is cut off and added there, and the result's extents."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    extra: tuple[int, ...]
    extents: tuple[int, ...]


def read_spread(op: OperatorView, spatial: tuple[int, ...], window: tuple[int, ...]) -> Spread:
    """Read how a transposed convolution over axes of extents `spatial` is padded.

    Where the extents of the result are given, or follow from `auto_pad`, the padding is what is left over; an odd one
    is larger before, except for SAME_UPPER. Where they are larger than what the windows reach, the rest is zero.

    Raises:
        Refusal: the attributes do not fit together, or padding is negative.
    """
    rank = len(spatial)
    ones, zeros = (1,) * rank, (0,) * rank
    strides, dilations = op.integers("strides") or ones, op.integers("dilations") or ones
    extra, pads = op.integers("output_padding") or zeros, op.integers("pads")
    wanted, auto_pad = op.integers("output_shape"), op.text("auto_pad", "NOTSET")
    if not len(strides) == len(dilations) == len(extra) == rank or min(strides + dilations) < 1 or min(extra) < 0:
        raise Refusal("its window does not fit the spatial axes")
    if pads is not None and (len(pads) != 2 * rank or min(pads) < 0):
        raise Refusal("its padding does not fit the spatial axes")
    if auto_pad not in ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"):
        raise Refusal(f"auto_pad {auto_pad!r} is not known")
    reach = tuple(
        (extent - 1) * stride + more + dilation * (taps - 1) + 1
        for extent, stride, more, dilation, taps in zip(spatial, strides, extra, dilations, window, strict=True)
    )
    if wanted is None and auto_pad.startswith("SAME"):
        wanted = tuple(extent * stride for extent, stride in zip(spatial, strides, strict=True))
        if any(map(int.__lt__, reach, wanted)):
            raise Refusal("its windows leave gaps, about which runtimes disagree")
    if wanted is None:
        before, after = (pads[:rank], pads[rank:]) if pads is not None and auto_pad == "NOTSET" else (zeros, zeros)
        extents = tuple(r - b - a for r, b, a in zip(reach, before, after, strict=True))
    else:
        extents = wanted[-rank:]
        if len(extents) != rank:
            raise Refusal("its output_shape does not fit the spatial axes")
        totals = [max(0, r - e) for r, e in zip(reach, extents, strict=True)]
        small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        before, after = (small, large) if auto_pad == "SAME_UPPER" else (large, small)
        extra = tuple(m + max(0, e - r) for m, e, r in zip(extra, extents, reach, strict=True))
    if min(extents) < 1:
        raise Refusal("nothing of its result is left")
    return Spread(strides, dilations, before, after, extra, extents)
