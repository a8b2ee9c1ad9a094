"""Checks models by running them in child processes: equal outputs, speed, time by node."""

from korch_cli.verify.agreement import first_failure, no_worse, verify_models
from korch_cli.verify.child import ChildError, Subject
from korch_cli.verify.draw import draw_inputs
from korch_cli.verify.driver import CudaDriver, Device, find_driver
from korch_cli.verify.guilt import find_guilty
from korch_cli.verify.inputs import bind_inputs, model_inputs
from korch_cli.verify.library import CPU_PROVIDER, CUDA_PROVIDER, find_library, fitting_library
from korch_cli.verify.profile import profile_nodes
from korch_cli.verify.runtime import require_cuda, require_onnxruntime
from korch_cli.verify.speed import compare_all, compare_speed

__all__ = [
    "CPU_PROVIDER",
    "CUDA_PROVIDER",
    "ChildError",
    "CudaDriver",
    "Device",
    "Subject",
    "bind_inputs",
    "compare_all",
    "compare_speed",
    "draw_inputs",
    "find_driver",
    "find_guilty",
    "find_library",
    "first_failure",
    "fitting_library",
    "model_inputs",
    "no_worse",
    "profile_nodes",
    "require_cuda",
    "require_onnxruntime",
    "verify_models",
]
