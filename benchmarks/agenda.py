"""In which order a run takes the models: it may be cut short, so that what matters most comes first."""

from __future__ import annotations

from collections.abc import Iterable

_PAPER = ("candy", "yolox_nano", "yolov4", "segformer_b0", "efficientvit_b1_224", "efficientvit_b1_2048")
FIRST = (
    *(f"{name}-{exporter}" for exporter in ("dynamo", "script") for name in _PAPER),
    "ppocr_",
    "minilm",
    "bert_",
    "resnet50",
    "mobilenetv3",
)
"""How the names begin of the models of the paper and of those that most people deploy."""


def by_importance(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in the order in which to measure them; those of no rank stay in theirs, at the end."""

    def place(name: str) -> int:
        return next((i for i, start in enumerate(FIRST) if name.startswith(start)), len(FIRST))

    return tuple(sorted(names, key=place))
