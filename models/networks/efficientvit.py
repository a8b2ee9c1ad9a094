"""EfficientViT-B1, a classifier with linear attention (Cai et al., EfficientViT, 2022), built by timm."""

from __future__ import annotations

import timm
from torch import nn


def build() -> nn.Module:
    """Return the network: image 1x3xHxW to 1x1000 scores; H and W are multiples of 32."""
    network: nn.Module = timm.create_model("efficientvit_b1", pretrained=False)
    return network
