"""TransformerNet, the network of fast neural style transfer of which Candy is a set of weights.

Johnson, Alahi, Fei-Fei: Perceptual Losses for Real-Time Style Transfer, 2016, with instance normalisation and with
enlargement by repeated pixels in place of transposed convolution.
"""

from __future__ import annotations

from torch import Tensor, nn

_RESIDUAL_BLOCKS = 5


def build() -> nn.Module:
    """Return the network: image Nx3xHxW to image of the same size, if H and W are multiples of 4."""
    return nn.Sequential(
        *_normalized(3, 32, kernel=9),
        *_normalized(32, 64, kernel=3, stride=2),
        *_normalized(64, 128, kernel=3, stride=2),
        *(_Residual(128) for _ in range(_RESIDUAL_BLOCKS)),
        nn.Upsample(scale_factor=2, mode="nearest"),
        *_normalized(128, 64, kernel=3),
        nn.Upsample(scale_factor=2, mode="nearest"),
        *_normalized(64, 32, kernel=3),
        *_convolution(32, 3, kernel=9),
    )


def _convolution(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    """Return a convolution that mirrors the image at its borders."""
    return [nn.ReflectionPad2d(kernel // 2), nn.Conv2d(channels_in, channels_out, kernel, stride)]


def _normalized(channels_in: int, channels_out: int, kernel: int, stride: int = 1) -> list[nn.Module]:
    norm = nn.InstanceNorm2d(channels_out, affine=True)
    return [*_convolution(channels_in, channels_out, kernel, stride), norm, nn.ReLU()]


class _Residual(nn.Module):
    """Two normalised convolutions, the second without an activation, and their input added."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        second = [*_convolution(channels, channels, 3), nn.InstanceNorm2d(channels, affine=True)]
        self.body = nn.Sequential(*_normalized(channels, channels, 3), *second)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)
