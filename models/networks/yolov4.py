"""YOLOv4: a detector with Mish in its backbone (Bochkovskiy, Wang, Liao: YOLOv4, 2020).

CSPDarknet53, spatial pyramid pooling, path aggregation, three heads with three anchors each, and the boxes decoded.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_CLASSES = 80
_DEPTHS = (1, 2, 8, 8, 4)
_STRIDES = (8, 16, 32)
_ANCHORS = (
    ((12, 16), (19, 36), (40, 28)),
    ((36, 75), (76, 55), (72, 146)),
    ((142, 110), (192, 243), (459, 401)),
)
"""Width and height in pixels of the anchors of each stride."""
_REACH = (1.2, 1.1, 1.05)
"""How far beyond its cell the centre of a box may lie, for each stride."""


def build() -> nn.Module:
    """Return the network: image Nx3xHxW to boxes NxAx4 and class scores NxAx80; H and W are multiples of 32."""
    return _Detector()


def _conv(channels_in: int, channels_out: int, kernel: int, stride: int = 1, mish: bool = False) -> nn.Module:
    """Return convolution, batch normalisation and an activation."""
    conv = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(channels_out), nn.Mish() if mish else nn.LeakyReLU(0.1))


def _alternating(channels_in: int, channels: int, count: int) -> nn.Module:
    """Return convolutions 1x1 to `channels` and 3x3 to twice as many, in turns."""
    layers = []
    for place in range(count):
        channels_out = channels * (1 + place % 2)
        layers.append(_conv(channels_in, channels_out, 1 + 2 * (place % 2)))
        channels_in = channels_out
    return nn.Sequential(*layers)


class _Residual(nn.Module):
    def __init__(self, channels: int, hidden: int) -> None:
        super().__init__()
        self.body = nn.Sequential(_conv(channels, hidden, 1, mish=True), _conv(hidden, channels, 3, mish=True))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class _Stage(nn.Module):
    """Halve the image; send one part of the channels through residual blocks and another past them."""

    def __init__(self, channels_in: int, depth: int) -> None:
        super().__init__()
        first = depth == 1
        channels = 2 * channels_in
        part = channels if first else channels_in
        self.shrink = _conv(channels_in, channels, 3, stride=2, mish=True)
        self.past = _conv(channels, part, 1, mish=True)
        blocks = (_Residual(part, part // 2 if first else part) for _ in range(depth))
        self.through = nn.Sequential(_conv(channels, part, 1, mish=True), *blocks, _conv(part, part, 1, mish=True))
        self.merge = _conv(2 * part, channels, 1, mish=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.shrink(x)
        return self.merge(torch.cat([self.through(x), self.past(x)], dim=1))


class _Backbone(nn.Module):
    """Return the features of strides 8, 16 and 32, with 256, 512 and 1024 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 32, 3, mish=True)
        self.stages = nn.ModuleList(_Stage(32 << place, depth) for place, depth in enumerate(_DEPTHS))

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features[2:]


class _Pyramid(nn.Module):
    """Pool the coarsest features over windows of three sizes, between convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.before = _alternating(1024, 512, 3)
        self.pools = nn.ModuleList(nn.MaxPool2d(extent, 1, extent // 2) for extent in (13, 9, 5))
        self.after = _alternating(2048, 512, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.before(x)
        return self.after(torch.cat([*(pool(x) for pool in self.pools), x], dim=1))


class _Up(nn.Module):
    """Enlarge coarse features twofold and join them with finer ones."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.coarse = nn.Sequential(_conv(2 * channels, channels, 1), nn.Upsample(scale_factor=2, mode="nearest"))
        self.fine = _conv(2 * channels, channels, 1)
        self.merge = _alternating(2 * channels, channels, 5)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return self.merge(torch.cat([self.fine(fine), self.coarse(coarse)], dim=1))


class _Down(nn.Module):
    """Shrink fine features twofold and join them with coarser ones."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.shrink = _conv(channels, 2 * channels, 3, stride=2)
        self.merge = _alternating(4 * channels, 2 * channels, 5)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        return self.merge(torch.cat([self.shrink(fine), coarse], dim=1))


class _Head(nn.Module):
    """Predict the boxes of one level in shares of the image, and their class scores."""

    def __init__(self, channels: int, place: int) -> None:
        super().__init__()
        per_anchor = 5 + _CLASSES
        predict = nn.Conv2d(2 * channels, len(_ANCHORS[place]) * per_anchor, 1)
        self.predict = nn.Sequential(_conv(channels, 2 * channels, 3), predict)
        self.stride = _STRIDES[place]
        self.reach = _REACH[place]
        self.register_buffer("anchors", torch.tensor(_ANCHORS[place], dtype=torch.float32).reshape(1, -1, 2, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        raw = self.predict(x)
        height, width = raw.shape[2:]
        raw = raw.reshape(-1, len(_ANCHORS[0]), 5 + _CLASSES, height, width)
        rows = torch.arange(height, dtype=raw.dtype).reshape(1, 1, 1, height, 1).expand(1, 1, 1, height, width)
        columns = torch.arange(width, dtype=raw.dtype).reshape(1, 1, 1, 1, width).expand(1, 1, 1, height, width)
        cells = torch.cat([columns, rows], dim=2)
        extent = torch.tensor([width, height], dtype=raw.dtype).reshape(1, 1, 2, 1, 1)
        centre = (raw[:, :, 0:2].sigmoid() * self.reach - (self.reach - 1) / 2 + cells) / extent
        size = raw[:, :, 2:4].exp() * self.anchors / (extent * self.stride)
        boxes = torch.cat([centre - size / 2, centre + size / 2], dim=2)
        scores = raw[:, :, 4:5].sigmoid() * raw[:, :, 5:].sigmoid()
        return boxes.permute(0, 1, 3, 4, 2).flatten(1, 3), scores.permute(0, 1, 3, 4, 2).flatten(1, 3)


class _Detector(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = _Backbone()
        self.pyramid = _Pyramid()
        self.ups = nn.ModuleList([_Up(256), _Up(128)])
        self.downs = nn.ModuleList([_Down(128), _Down(256)])
        self.heads = nn.ModuleList(_Head(128 << place, place) for place in range(len(_STRIDES)))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        fine, middle, coarse = self.backbone(image)
        coarse = self.pyramid(coarse)
        middle = self.ups[0](middle, coarse)
        fine = self.ups[1](fine, middle)
        middle = self.downs[0](fine, middle)
        coarse = self.downs[1](middle, coarse)
        found = [head(level) for head, level in zip(self.heads, (fine, middle, coarse), strict=True)]
        return torch.cat([boxes for boxes, _ in found], dim=1), torch.cat([scores for _, scores in found], dim=1)
