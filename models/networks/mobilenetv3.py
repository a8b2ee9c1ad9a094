"""MobileNetV3-Large, a classifier (Howard et al., Searching for MobileNetV3, 2019), built by timm."""

from __future__ import annotations

import timm
from torch import nn


def build() -> nn.Module:
    """Return the network: image 1x3xHxW to 1x1000 scores."""
    network: nn.Module = timm.create_model("mobilenetv3_large_100", pretrained=False)
    return network
