"""Segformer-B0 for semantic segmentation (Xie et al., SegFormer, 2021), built by transformers from a configuration."""

from __future__ import annotations

from torch import Tensor, nn
from transformers import SegformerConfig, SegformerForSemanticSegmentation

_LABELS = 150


def build() -> nn.Module:
    """Return the network: image 1x3xHxW to scores 1x150x(H/4)x(W/4)."""
    return _Scores()


class _Scores(nn.Module):
    """Return the scores alone; the configuration's defaults are those of the size B0."""

    def __init__(self) -> None:
        super().__init__()
        self.network = SegformerForSemanticSegmentation(SegformerConfig(num_labels=_LABELS))

    def forward(self, image: Tensor) -> Tensor:
        scores: Tensor = self.network(pixel_values=image, return_dict=False)[0]
        return scores
