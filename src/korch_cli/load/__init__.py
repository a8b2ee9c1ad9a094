"""Reading ONNX models: shapes bound, functions inlined, constants folded, nodes sorted."""

from korch_cli.load.driver import load as load
from korch_cli.load.optimised import vendor_profile as vendor_profile
from korch_cli.load.unroll import unroll as unroll
