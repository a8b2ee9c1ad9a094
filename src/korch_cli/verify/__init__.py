"""Checks models by running them in child processes: equal outputs, speed, time by node."""

from korch_cli.verify.agreement import first_failure, no_worse, verify_models
from korch_cli.verify.child import ChildError, Subject
from korch_cli.verify.draw import draw_inputs
from korch_cli.verify.guilt import find_guilty
from korch_cli.verify.inputs import bind_inputs, model_inputs
from korch_cli.verify.library import find_library
from korch_cli.verify.profile import profile_nodes
from korch_cli.verify.runtime import require_onnxruntime
from korch_cli.verify.speed import compare_all, compare_speed

__all__ = [
    "ChildError",
    "Subject",
    "bind_inputs",
    "compare_all",
    "compare_speed",
    "draw_inputs",
    "find_guilty",
    "find_library",
    "first_failure",
    "model_inputs",
    "no_worse",
    "profile_nodes",
    "require_onnxruntime",
    "verify_models",
]
