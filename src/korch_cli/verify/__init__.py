"""Checks models by running them in child processes: equal outputs, speed, time by node."""

from korch_cli.verify.agreement import verify_models, why_it_does_not_run
from korch_cli.verify.child import Subject
from korch_cli.verify.draw import draw_inputs
from korch_cli.verify.guilt import find_guilty
from korch_cli.verify.inputs import bind_inputs, model_inputs
from korch_cli.verify.library import find_library
from korch_cli.verify.profile import profile_nodes
from korch_cli.verify.runtime import require_onnxruntime
from korch_cli.verify.speed import compare_speed

__all__ = [
    "Subject",
    "bind_inputs",
    "compare_speed",
    "draw_inputs",
    "find_guilty",
    "find_library",
    "model_inputs",
    "profile_nodes",
    "require_onnxruntime",
    "verify_models",
    "why_it_does_not_run",
]
