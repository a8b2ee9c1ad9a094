"""Write a network with random weights as ONNX: `python models/export.py yolox 1x3x416x416 dynamo out.onnx`.

Needs torch, and timm or transformers for some networks (`pip install '.[export]'`). Runs in a process of its own: torch
takes seconds to import and keeps state. The same versions of the packages write the same file every time.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

OPSETS = {"dynamo": 18, "script": 17}
"""The opset that each of torch's exporters writes: the one that traces bytecode, and the older one."""
_SEED = 3
_CALIBRATION_RUNS = 2
_CALIBRATION_EXTENT = 512
"""Largest image, in pixels a side, that batch normalisation is calibrated on."""


def main() -> None:
    """Read the command line and export."""
    network, shape, exporter, path = sys.argv[1:]
    extents = tuple(map(int, shape.split("x")))
    warnings.simplefilter("ignore")
    model = made(network, extents)
    module = importlib.import_module(f"networks.{network}")
    draw, name = getattr(module, "draw", torch.rand), getattr(module, "INPUT", "image")
    export(model, draw(extents), name, exporter, Path(path))


def made(network: str, image: tuple[int, ...]) -> nn.Module:
    """Return a network with random weights for inputs of this shape, calibrated on such; the same one every time."""
    _define_vision_operators()
    torch.manual_seed(_SEED)
    torch.use_deterministic_algorithms(True)
    model = importlib.import_module(f"networks.{network}").build()
    vary_norms(model)
    calibrate(model, image)
    return model.eval()


def vary_norms(model: nn.Module) -> None:
    """Draw scales and shifts of norms, which start as ones and zeros.

    With small scales and wide shifts an activation sees little of its bend, and rounding errors do not grow from layer
    to layer. Otherwise they do in most deep networks with random weights, until no two ways to compute one agree.
    """
    for module in model.modules():
        if "Norm" in type(module).__name__ and getattr(module, "weight", None) is not None:
            nn.init.uniform_(module.weight, 0.3, 0.5)
            nn.init.uniform_(module.bias, 0.0, 0.6)


def calibrate(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Let batch normalisation see random images.

    With the statistics that it starts with, values shrink from layer to layer until they are denormal, and arithmetic
    on those is so slow that no timing means anything.
    """
    model.eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
            module.train()
    if not any(isinstance(module, nn.BatchNorm2d) for module in model.modules()):
        return
    channels, *extents = (min(extent, _CALIBRATION_EXTENT) for extent in shape[1:])
    with torch.no_grad():
        for _ in range(_CALIBRATION_RUNS):
            model(draw_images(channels, extents))


def draw_images(channels: int, extents: list[int]) -> Tensor:
    """Return a batch of images: noise, which models are compared and timed on, and smooth ones.

    Noise alone would be averaged out by the first layers, and normalisation by the little that is left over would turn
    rounding errors into visible ones.
    """
    noise = [torch.randn(1, channels, *extents) for _ in range(3)]
    smooth = []
    for coarse in (2, 4, 8):
        drawn = torch.randn(1, channels, coarse, coarse)
        smooth.append(nn.functional.interpolate(drawn, extents, mode="bilinear") + 0.1 * noise[0])
    return torch.cat([*noise, torch.rand(1, channels, *extents), *smooth])


def export(model: nn.Module, example: Tensor, name: str, exporter: str, path: Path) -> None:
    """Write the model with all its weights inside; its input is called `name`."""
    options = {"opset_version": OPSETS[exporter], "input_names": [name], "dynamo": exporter == "dynamo"}
    torch.onnx.export(model, (example,), path, external_data=False, verbose=False, **options)


def _define_vision_operators() -> None:
    """Declare two operators that torchvision describes but cannot load beside a torch of another build.

    timm imports torchvision, and none of the networks uses it.
    """
    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        for name in list(sys.modules):
            if name.split(".")[0] == "torchvision":
                del sys.modules[name]
        boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", boxes)


if __name__ == "__main__":
    main()
