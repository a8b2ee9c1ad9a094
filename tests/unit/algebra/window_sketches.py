"""Random graphs with windows over images: the rules about steps, pooling and joined convolutions apply to them."""

from __future__ import annotations

from rule_sketches import Sketch, sketch


def _phase(s: Sketch, x: str, row: int, column: int, step: int) -> str:
    far = 1 << 40
    match s.rng.integers(3):
        case 0:
            cut = s.integers(row, column), s.integers(far, far), s.integers(2, -1), s.integers(step, step)
            return str(s.add("Slice", x, *cut))
        case 1:
            rows = s.add("Slice", x, s.integers(row), s.integers(far), s.integers(2), s.integers(step))
            return str(s.add("Slice", rows, s.integers(column), s.integers(far), s.integers(3), s.integers(step)))
    rest = s.add("Slice", x, s.integers(0, 0, row, column), s.integers(*[far] * 4))
    return str(s.add("Slice", rest, s.integers(0, 0), s.integers(far, far), s.integers(-2, 3), s.integers(step, step)))


@sketch("convolve_with_steps")
def focus(s: Sketch) -> str:
    batch, channels, outputs, step = s.extent(1, 2), s.extent(1, 3), s.extent(1, 5), s.extent(2, 3)
    height, width = s.extent(3, 6), s.extent(3, 6)
    x = s.input(batch, channels, step * height, step * width)
    firsts = [(row, column) for row in range(step) for column in range(step)]
    s.rng.shuffle(firsts)
    parts = [_phase(s, x, row, column, step) for row, column in firsts]
    return _convolved(s, s.add("Concat", *parts, axis=1), channels * step * step, outputs)


@sketch("convolve_with_steps")
def space_to_depth(s: Sketch) -> str:
    batch, channels, outputs, step = s.extent(1, 2), s.extent(1, 3), s.extent(1, 5), s.extent(2, 3)
    x = s.input(batch, channels, step * s.extent(3, 6), step * s.extent(3, 6))
    return _convolved(s, s.add("SpaceToDepth", x, blocksize=step), channels * step * step, outputs)


def _convolved(s: Sketch, x: str, channels: int, outputs: int) -> str:
    height, width = s.extent(1, 3), s.extent(1, 3)
    pads = [s.extent(0, 2), s.extent(0, 2), s.extent(0, 2), s.extent(0, 2)]
    strides = [s.extent(1, 2), s.extent(1, 2)]
    bias = [s.weights(outputs)] if s.rng.integers(2) else []
    return str(s.add("Conv", x, s.weights(outputs, channels, height, width), *bias, pads=pads, strides=strides))


@sketch("pool_in_steps")
def pyramid_of_pooling(s: Sketch) -> str:
    """Square windows alone: of others the reference evaluator has no right answer, see test_pooling_in_steps."""
    batch, channels, height, width = s.extent(1, 2), s.extent(), s.extent(1, 9), s.extent(1, 9)
    x = s.input(batch, channels, height, width)
    pad = s.extent(0, 2)
    parts = [x]
    for _ in range(3):
        extents = [2 * pad + 1] * 2
        parts.append(s.add("MaxPool", x, kernel_shape=extents, pads=[pad] * 4, strides=[1, 1]))
        pad += s.extent(1, 3)
    return str(s.add("Concat", *parts, axis=1))


@sketch("convolve_parts")
def convolved_concatenation(s: Sketch) -> str:
    batch, height, width, outputs = s.extent(1, 2), s.extent(), s.extent(), s.extent()
    channels = [16 * s.extent(1, 2), 16 * s.extent(1, 2)]
    x = s.input(batch, 3, height, width)
    parts = [s.add("Sigmoid", s.add("Conv", x, s.weights(count, 3, 1, 1))) for count in channels]
    bias = [s.weights(outputs)] if s.rng.integers(2) else []
    joined = s.add("Concat", *parts, axis=[1, -3][s.rng.integers(2)])
    y = s.add("Conv", joined, s.weights(outputs, sum(channels), 1, 1), *bias, kernel_shape=[1, 1])
    return s.either("Mul", y, s.add("Sigmoid", y))


@sketch("join_convolutions")
def heads(s: Sketch) -> str:
    s.opset = int(s.rng.choice([11, 13, 17, 18]))
    batch, channels, height, width = s.extent(1, 2), s.extent(), s.extent(3, 6), s.extent(3, 6)
    x = s.add("Relu", s.input(batch, channels, height, width))
    kernel, pads = s.extent(1, 3), [s.extent(0, 1) for _ in range(4)]
    parts = []
    for i, outputs in enumerate((4, 1, 20)[: s.extent(2, 3)]):
        bias = [s.weights(outputs)] if s.rng.integers(2) else []
        y = s.add("Conv", x, s.weights(outputs, channels, kernel, kernel), *bias, pads=pads)
        parts.append(s.add("Sigmoid", y) if i else y)
    return str(s.add("Concat", *parts, axis=1))
