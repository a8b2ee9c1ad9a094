"""YOLOX-Nano: an anchor-free detector with depthwise convolutions (Ge et al., YOLOX, 2021).

A cross-stage-partial backbone, a path aggregation neck, and a head that keeps classes and boxes apart. Outputs are in
units of each level's grid, as the published export leaves them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_CLASSES = 80
_WIDTHS = (16, 32, 64, 128, 256)
"""Channels after the stem and after each of the four stages: the largest model's, times 0.25."""
_DEPTHS = (1, 3, 3, 1)
_HEAD = 64


def build() -> nn.Module:
    """Return the network: image 1x3xHxW to 1xAx85 for the A cells of strides 8, 16 and 32; H and W multiples of 32."""
    return _Detector()


def _conv(channels_in: int, channels_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Module:
    """Return convolution, batch normalisation and SiLU."""
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out, eps=1e-3), nn.SiLU())


def _separable(channels_in: int, channels_out: int, stride: int = 1) -> nn.Module:
    """Return a depthwise 3x3 convolution and a pointwise one."""
    depthwise = _conv(channels_in, channels_in, 3, stride, groups=channels_in)
    return nn.Sequential(depthwise, _conv(channels_in, channels_out))


class _Focus(nn.Module):
    """Put the four pixels of every 2x2 square into channels of their own, then convolve."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = _conv(12, channels, 3)

    def forward(self, x: Tensor) -> Tensor:
        corners = [x[..., row::2, column::2] for column in (0, 1) for row in (0, 1)]
        return self.conv(torch.cat(corners, dim=1))


class _Bottleneck(nn.Module):
    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, channels), _separable(channels, channels))
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + x if self.shortcut else self.body(x)


class _CrossStage(nn.Module):
    """Send half of the channels through bottlenecks and the other half past them."""

    def __init__(self, channels_in: int, channels_out: int, depth: int = 1, shortcut: bool = False) -> None:
        super().__init__()
        half = channels_out // 2
        deep = (_Bottleneck(half, shortcut) for _ in range(depth))
        self.through = nn.Sequential(_conv(channels_in, half), *deep)
        self.past = _conv(channels_in, half)
        self.merge = _conv(2 * half, channels_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.merge(torch.cat([self.through(x), self.past(x)], dim=1))


class _Pyramid(nn.Module):
    """Pool over three windows of growing size and keep all of them beside the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.reduce = _conv(channels, half)
        self.pools = nn.ModuleList(nn.MaxPool2d(extent, 1, extent // 2) for extent in (5, 9, 13))
        self.merge = _conv(4 * half, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.reduce(x)
        return self.merge(torch.cat([x, *(pool(x) for pool in self.pools)], dim=1))


class _Backbone(nn.Module):
    """Return the features of strides 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _Focus(_WIDTHS[0])
        stages = []
        for place, (before, after, depth) in enumerate(zip(_WIDTHS[:-1], _WIDTHS[1:], _DEPTHS, strict=True)):
            last = place == len(_DEPTHS) - 1
            pyramid = [_Pyramid(after)] if last else []
            cross = _CrossStage(after, after, depth, shortcut=not last)
            stages.append(nn.Sequential(_separable(before, after, stride=2), *pyramid, cross))
        self.stages = nn.ModuleList(stages)

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features[1:]


class _Neck(nn.Module):
    """Carry deep features up to the fine levels, and fine ones back down."""

    def __init__(self) -> None:
        super().__init__()
        fine, middle, coarse = _WIDTHS[2:]
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.reduce_coarse = _conv(coarse, middle)
        self.up_middle = _CrossStage(2 * middle, middle)
        self.reduce_middle = _conv(middle, fine)
        self.up_fine = _CrossStage(2 * fine, fine)
        self.shrink_fine = _separable(fine, fine, stride=2)
        self.down_middle = _CrossStage(2 * fine, middle)
        self.shrink_middle = _separable(middle, middle, stride=2)
        self.down_coarse = _CrossStage(2 * middle, coarse)

    def forward(self, fine: Tensor, middle: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        coarse = self.reduce_coarse(coarse)
        middle = self.reduce_middle(self.up_middle(torch.cat([self.up(coarse), middle], dim=1)))
        fine = self.up_fine(torch.cat([self.up(middle), fine], dim=1))
        middle = self.down_middle(torch.cat([self.shrink_fine(fine), middle], dim=1))
        coarse = self.down_coarse(torch.cat([self.shrink_middle(middle), coarse], dim=1))
        return fine, middle, coarse


class _Head(nn.Module):
    """Return, for one level, box, objectness and class scores: 1x85xHxW."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = _conv(channels, _HEAD)
        self.class_features = nn.Sequential(_separable(_HEAD, _HEAD), _separable(_HEAD, _HEAD))
        self.box_features = nn.Sequential(_separable(_HEAD, _HEAD), _separable(_HEAD, _HEAD))
        self.classes = nn.Conv2d(_HEAD, _CLASSES, 1)
        self.box = nn.Conv2d(_HEAD, 4, 1)
        self.objectness = nn.Conv2d(_HEAD, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        classes = self.classes(self.class_features(x))
        boxes = self.box_features(x)
        return torch.cat([self.box(boxes), self.objectness(boxes).sigmoid(), classes.sigmoid()], dim=1)


class _Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = _Backbone()
        self.neck = _Neck()
        self.heads = nn.ModuleList(_Head(channels) for channels in _WIDTHS[2:])

    def forward(self, image: Tensor) -> Tensor:
        levels = self.neck(*self.backbone(image))
        found = [head(level).flatten(start_dim=2) for head, level in zip(self.heads, levels, strict=True)]
        return torch.cat(found, dim=2).permute(0, 2, 1)
