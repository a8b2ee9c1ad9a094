"""Cases of products: Einsum, Gemm and convolutions."""

from __future__ import annotations

import numpy as np
from operator_case import case, floats, integers  # type: ignore[import-not-found]

_SUMS: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("ij->ji", ((3, 4),)),
    ("ij", ((3, 4),)),
    ("ji", ((3, 4),)),
    ("ijk->", ((2, 3, 4),)),
    ("ijk->ik", ((2, 3, 4),)),
    ("ijk->kj", ((2, 3, 4),)),
    ("ii->i", ((4, 4),)),
    ("ii", ((4, 4),)),
    ("iji->j", ((3, 2, 3),)),
    ("iijj->ij", ((3, 3, 2, 2),)),
    ("iii->i", ((3, 3, 3),)),
    ("...ii->...i", ((2, 5, 3, 3),)),
    ("...ij->...ji", ((2, 3, 4),)),
    ("b...->...b", ((2, 3, 4),)),
    (
        "i,i->",
        (
            (5,),
            (5,),
        ),
    ),
    (
        "i,j->ij",
        (
            (3,),
            (4,),
        ),
    ),
    (
        "ij,j->i",
        (
            (3, 4),
            (4,),
        ),
    ),
    (
        "ij,jk",
        (
            (3, 4),
            (4, 5),
        ),
    ),
    (
        "ij, jk -> ki",
        (
            (3, 4),
            (4, 5),
        ),
    ),
    (
        "ij,ij->ij",
        (
            (3, 4),
            (3, 4),
        ),
    ),
    (
        "ij,ij->",
        (
            (3, 4),
            (3, 4),
        ),
    ),
    (
        "bij,bjk->bik",
        (
            (2, 3, 4),
            (2, 4, 5),
        ),
    ),
    (
        "bhid,bhjd->bhij",
        (
            (2, 2, 3, 4),
            (2, 2, 5, 4),
        ),
    ),
    (
        "bhij,bhjd->bihd",
        (
            (2, 2, 3, 4),
            (2, 2, 4, 5),
        ),
    ),
    (
        "bqhd,bkhd->bhqk",
        (
            (2, 3, 2, 4),
            (2, 5, 2, 4),
        ),
    ),
    (
        "abc,cde->abde",
        (
            (2, 3, 4),
            (4, 3, 2),
        ),
    ),
    (
        "abcd,cdef->abef",
        (
            (2, 3, 2, 4),
            (2, 4, 3, 2),
        ),
    ),
    (
        "ijk,jl->il",
        (
            (2, 3, 4),
            (3, 5),
        ),
    ),
    (
        "...ij,...jk->...ik",
        (
            (2, 1, 3, 4),
            (5, 4, 2),
        ),
    ),
    (
        "...ij,jk->...ik",
        (
            (2, 3, 4),
            (4, 5),
        ),
    ),
    (
        "i...,i...->...",
        (
            (2, 3, 4),
            (2, 3, 4),
        ),
    ),
    (
        "...,...->...",
        (
            (3, 4),
            (4,),
        ),
    ),
    (
        "ca,ab",
        (
            (2, 3),
            (3, 4),
        ),
    ),
    (
        ",ij->ij",
        (
            (),
            (2, 3),
        ),
    ),
    (
        ",->",
        (
            (),
            (),
        ),
    ),
    (
        "ij,jk,kl->il",
        (
            (2, 3),
            (3, 4),
            (4, 5),
        ),
    ),
    (
        "i,i,i->i",
        (
            (4,),
            (4,),
            (4,),
        ),
    ),
    (
        "ij,kj,lj->ikl",
        (
            (2, 3),
            (4, 3),
            (5, 3),
        ),
    ),
    (
        "ijk,ijl->kl",
        (
            (2, 1, 4),
            (2, 1, 5),
        ),
    ),
]


def _operands(shapes: tuple[tuple[int, ...], ...]) -> list[np.ndarray]:
    return [np.asarray(floats(*shape) + np.float32(i / 8)) for i, shape in enumerate(shapes)]


_EINSUM = [
    *(case("Einsum", *_operands(shapes), equation=text, tolerance=2e-5) for text, shapes in _SUMS),
    case("Einsum", integers(3, 4), integers(4, 5), equation="ij,jk->ik"),
    case("Einsum", floats(3, 4, dtype=np.float64), floats(4, 5, dtype=np.float64), equation="ij,jk->ik"),
]

_LINE, _LINE_WEIGHT = floats(2, 3, 5), floats(3, 2, 4)
_IMAGE, _WEIGHT = floats(1, 4, 3, 4), floats(4, 2, 3, 2)
_SPREAD = [
    case("ConvTranspose", _LINE, _LINE_WEIGHT, tolerance=1e-5),
    case("ConvTranspose", _LINE, _LINE_WEIGHT, floats(2), strides=[3], pads=[1, 2], tolerance=1e-5),
    case("ConvTranspose", _LINE, _LINE_WEIGHT, strides=[3], output_padding=[2], dilations=[2], tolerance=1e-5),
    case("ConvTranspose", _IMAGE, _WEIGHT, floats(2), strides=[2, 1], kernel_shape=[3, 2], tolerance=1e-5),
    case("ConvTranspose", _IMAGE, _WEIGHT, floats(4), group=2, strides=[2, 3], pads=[1, 0, 0, 1], tolerance=1e-5),
    case("ConvTranspose", _IMAGE, floats(4, 1, 3, 3), group=4, dilations=[2, 1], tolerance=1e-5),
    case("ConvTranspose", floats(1, 2, 2, 3, 2), floats(2, 3, 2, 2, 2), strides=[2, 1, 2], tolerance=1e-5),
    *(
        case("ConvTranspose", _IMAGE, _WEIGHT, strides=[2, 1], auto_pad=pad, tolerance=1e-5)
        for pad in ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")
    ),
    *(
        case("ConvTranspose", _IMAGE, _WEIGHT, strides=[2, 3], auto_pad=pad, output_shape=shape, tolerance=1e-5)
        for pad in ("SAME_UPPER", "SAME_LOWER", "NOTSET")
        for shape in ([6, 10], [5, 9], [8, 13])
    ),
    case("ConvTranspose", _IMAGE, _WEIGHT, strides=[2, 3], output_shape=[6, 9], output_padding=[1, 1], tolerance=1e-5),
    *(
        case("ConvTranspose", _IMAGE, _WEIGHT, strides=[1, 1], dilations=[2, 3], auto_pad=pad, tolerance=1e-5)
        for pad in ("SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    case("ConvTranspose", floats(1, 1, 1, 1), floats(1, 1, 1, 1)),
]

CASES = [*_EINSUM, *_SPREAD]
