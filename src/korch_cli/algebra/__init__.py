"""ONNX to ONNX: convolutions and products take in what surrounds them, where their weights can say it."""

from korch_cli.algebra.driver import simplify as simplify
from korch_cli.algebra.union import Union as Union
from korch_cli.algebra.union import unite_models as unite_models
