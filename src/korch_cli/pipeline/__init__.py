"""The only place that knows all stages and their order; `optimize.py` is the whole story."""

from korch_cli.pipeline.dry_run import dry_run as dry_run
from korch_cli.pipeline.explanation import explain as explain
from korch_cli.pipeline.forced import Fusion as Fusion
from korch_cli.pipeline.forced import build_fusions as build_fusions
from korch_cli.pipeline.forced import fused_model as fused_model
from korch_cli.pipeline.forced import plan_fusion as plan_fusion
from korch_cli.pipeline.inspection import inspect_model as inspect_model
from korch_cli.pipeline.optimize import optimize as optimize
from korch_cli.pipeline.reduction import ReduceSettings as ReduceSettings
from korch_cli.pipeline.reduction import reduce_model as reduce_model
from korch_cli.pipeline.roofline import kernel_plan as kernel_plan
from korch_cli.pipeline.roofline import kernel_times as kernel_times
from korch_cli.pipeline.settings import Settings as Settings
