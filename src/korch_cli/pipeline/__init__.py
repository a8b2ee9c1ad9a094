"""The only place that knows all stages and their order; `optimize.py` is the whole story."""

from korch_cli.pipeline.optimize import optimize as optimize
from korch_cli.pipeline.settings import Settings as Settings
