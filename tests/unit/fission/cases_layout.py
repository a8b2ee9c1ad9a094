"""Cases of operators that move, pick, join or repeat elements."""

from __future__ import annotations

import itertools

import numpy as np
from onnx import numpy_helper
from operator_case import Fixed, booleans, case, fixed, floats, integers, scalar  # type: ignore[import-not-found]

_MIN, _MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_X = floats(2, 3, 4)
_HALF = floats(4, dtype=np.float16)

_SHAPES = [
    case("Identity", _X),
    case("Identity", booleans(3)),
    case("Dropout", _X, until=11, ratio=0.3),
    case("Dropout", _X, until=11),
    case("Dropout", _X, since=12, seed=1),
    case("Dropout", _X, scalar(0.3), scalar(False, np.bool_), since=12),
    case("Dropout", _X, outputs=2, since=12),
    case("Dropout", floats(), scalar(0.3), outputs=2, since=12),
    case("Transpose", _X),
    case("Transpose", _X, perm=[1, 2, 0]),
    case("Transpose", _X, perm=[0, 1, 2]),
    case("Transpose", floats()),
    *(case("Reshape", _X, fixed(*shape)) for shape in ((6, 4), (0, -1), (-1,), (4, 0, 2), (0, 0, 4))),
    case("Reshape", floats(0, 4), fixed(4, 0), since=14, allowzero=1),
    case("Reshape", floats(0, 4), fixed(0, 2, 2)),
    case("Reshape", floats(1), Fixed(np.zeros(0, np.int64))),
    *(case("Flatten", _X, axis=axis) for axis in (0, 1, 2, 3)),
    *(case("Flatten", _X, axis=axis, since=11) for axis in (-1, -3)),
    case("Flatten", _X),
    case("Squeeze", floats(1, 3, 1, 2), until=12, axes=[0]),
    case("Squeeze", floats(1, 3, 1, 2), until=12, axes=[0, 2]),
    case("Squeeze", floats(1, 3, 1, 2)),
    case("Squeeze", floats(1, 3, 1, 2), since=11, until=12, axes=[-2]),
    case("Squeeze", floats(1, 3, 1, 2), fixed(0, -2), since=13),
    case("Unsqueeze", _X, until=12, axes=[0]),
    case("Unsqueeze", _X, until=12, axes=[1, 4]),
    case("Unsqueeze", _X, since=11, until=12, axes=[-1]),
    case("Unsqueeze", _X, fixed(-1, 0), since=13),
    case("Unsqueeze", floats(), fixed(0), since=13),
    case("Expand", floats(3, 1), fixed(2, 1, 4)),
    case("Expand", floats(3, 1), fixed(3, 4)),
    case("Expand", floats(3, 1), fixed(1)),
    case("Expand", integers(), fixed(2, 2)),
    *(case("DepthToSpace", floats(1, 8, 2, 3), blocksize=2, mode=m, since=11) for m in ("DCR", "CRD")),
    case("DepthToSpace", floats(1, 8, 2, 3), blocksize=2),
    case("SpaceToDepth", floats(1, 2, 4, 6), blocksize=2),
    *(case("SpaceToDepth", floats(1, 2, 4, 6), blocksize=2, mode=m, since=28) for m in ("DCR", "CRD")),
]

_BOXES = [
    case("Slice", _X, until=9, starts=[1, 0], ends=[2, 3], axes=[1, 2]),
    case("Slice", _X, until=9, starts=[0, 1], ends=[1, 100]),
    case("Slice", _X, until=9, starts=[-2], ends=[_MAX], axes=[2]),
    case("Slice", _X, until=9, starts=[-100], ends=[-1], axes=[2]),
    case("Slice", _X, fixed(1, 0), fixed(2, 3), fixed(1, 2), since=10),
    case("Slice", _X, fixed(0, 1), fixed(1, 100), since=10),
    case("Slice", _X, fixed(0, 3), fixed(2, 0), fixed(0, 2), fixed(1, -2), since=10),
    case("Slice", _X, fixed(-1), fixed(_MIN), fixed(2), fixed(-1), since=10),
    case("Slice", _X, fixed(100), fixed(-100), fixed(-1), fixed(-3), since=11),
    case("Slice", _X, fixed(-100), fixed(_MIN), fixed(2), fixed(-1), since=11),
    case("Slice", _X, fixed(3), fixed(1), fixed(2), since=10),
    case("Slice", _X, fixed(1, dtype=np.int32), fixed(3, dtype=np.int32), fixed(2, dtype=np.int32), since=10),
    case("Slice", _X, fixed(0), fixed(4), None, fixed(2), since=10),
    case("Split", floats(2, 6), until=12, outputs=3, axis=1),
    case("Split", floats(2, 6), until=12, outputs=2, axis=1, split=[2, 4]),
    case("Split", floats(6, 2), until=12, outputs=2),
    case("Split", floats(2, 6), since=11, outputs=2, axis=-1, until=12),
    case("Split", floats(2, 6), since=13, until=17, outputs=3, axis=1),
    case("Split", floats(2, 6), fixed(2, 4), since=13, outputs=2, axis=1),
    case("Split", floats(2, 6), fixed(0, 6), since=13, outputs=2, axis=1),
    case("Split", floats(2, 7), since=18, outputs=3, axis=1, num_outputs=3),
    case("Split", floats(2, 6), since=18, outputs=3, axis=-1, num_outputs=3),
    case("Concat", floats(2, 3), floats(2, 1), floats(2, 4), axis=1),
    case("Concat", floats(2, 3), axis=0),
    case("Concat", floats(2, 3), floats(5, 3), axis=-2, since=11),
    case("Concat", integers(2), fixed(1, 2, 3), axis=0),
    case("Gather", _X, fixed(2, 0, 2), axis=1),
    case("Gather", _X, scalar(1, np.int64), axis=1),
    case("Gather", _X, Fixed(np.array([[0, 1], [3, 2]])), axis=2),
    case("Gather", _X, fixed(0, dtype=np.int32)),
    case("Gather", _X, fixed(-1, -2), axis=-1, since=11),
    case("Tile", floats(2, 1, 3), fixed(2, 4, 1)),
    case("Tile", floats(2, 1), fixed(1, 1)),
    case("Tile", floats(2, 3), fixed(0, 2)),
    case("Trilu", floats(2, 3, 4)),
    *(case("Trilu", floats(3, 4), scalar(k, np.int64), upper=u) for k, u in ((1, 1), (-1, 1), (1, 0), (-2, 0))),
    case("Trilu", integers(3, 3)),
    *(case("Trilu", floats(2, 3, 4), np.array(k), upper=u) for k in (0, 2, -1, 1 << 40, -(1 << 40)) for u in (0, 1)),
    *(case("Trilu", floats(3, 4), scalar(k, np.int64), upper=u) for k in (1 << 40, -(1 << 40)) for u in (0, 1)),
    case("Trilu", floats(0, 4), np.array([1])),
    case("ConstantOfShape", fixed(2, 3), value=numpy_helper.from_array(np.array([7], np.int64))),
    case("ConstantOfShape", fixed(2, 3)),
]

_PADDED = [
    *(case("Pad", _X, until=10, pads=[0, 1, 2, 0, 0, 3], mode=m) for m in ("constant", "edge", "reflect")),
    case("Pad", _X, until=10, pads=[0, 1, 2, 0, 0, 3], value=1.5),
    case("Pad", _X, until=10, pads=[0, -1, 2, 0, 0, -1]),
    *(case("Pad", _X, fixed(0, 1, 2, 0, 0, 3), since=11, mode=m) for m in ("constant", "edge", "reflect")),
    case("Pad", _X, fixed(0, 1, 2, 0, 0, 3), scalar(2.5), since=11),
    case("Pad", _X, fixed(0, -1, 2, 0, 0, -1), scalar(2.5), since=11),
    case("Pad", integers(3), fixed(1, 2), scalar(-7, np.int64), since=11),
    case("Pad", _X, fixed(1, 2), scalar(0.5), fixed(-1), since=18),
    case("Pad", _X, fixed(1, 2, 0, 1), None, fixed(2, 0), since=18),
    case("Pad", _X, fixed(1, 2), None, fixed(1), since=18, mode="edge"),
    case("Pad", _X, fixed(2, 2), None, fixed(2), since=19, mode="wrap"),
    case("Pad", _HALF, fixed(1, 1), scalar(0.1, np.float16), since=13),
]

_IMAGE = floats(1, 2, 4, 6)
_NEAREST = ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel", "tf_half_pixel_for_nn")
_ROUNDINGS = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
_NONE = Fixed(np.zeros(0, np.float32))


def _scales(*numbers: float) -> Fixed:
    return fixed(*numbers, dtype=np.float32)


_RESIZED = [
    case("Upsample", _IMAGE, until=8, scales=[1.0, 1.0, 2.0, 3.0]),
    case("Upsample", _IMAGE, until=8, scales=[1.0, 1.0, 2.0, 2.0], mode="nearest"),
    case("Upsample", _IMAGE, _scales(1, 1, 2, 3), since=9),
    case("Upsample", _IMAGE, _scales(1, 1, 1.5, 2.5), since=9),
    case("Resize", _IMAGE, _scales(1, 1, 2, 3), until=10),
    case("Resize", _IMAGE, _NONE, _scales(1, 1, 2, 2), since=11),
    case("Resize", _IMAGE, _NONE, _NONE, fixed(1, 2, 8, 12), since=11),
    case("Resize", _IMAGE, None, _scales(1, 1, 2, 2), since=13),
    case("Resize", _IMAGE, None, None, fixed(1, 2, 7, 9), since=13),
    case("Resize", _IMAGE, None, _scales(2, 2), since=18, axes=[2, 3]),
    case("Resize", _IMAGE, None, None, fixed(9, 8), since=18, axes=[3, 2], antialias=0),
    case("Resize", _IMAGE, None, _scales(1, 1, 2, 2), since=19, coordinate_transformation_mode="half_pixel_symmetric"),
    *(
        case("Resize", _IMAGE, _NONE, s, since=11, coordinate_transformation_mode=mode, nearest_mode=rounding)
        for mode, rounding, s in itertools.product(_NEAREST, _ROUNDINGS, (_scales(1, 1, 2, 3), _scales(1, 1, 0.5, 0.5)))
    ),
]

CASES = [*_SHAPES, *_BOXES, *_PADDED, *_RESIZED]
