"""Reading ONNX models: shapes bound, functions inlined, constants folded, nodes sorted."""

from korch_cli.load.driver import load as load
from korch_cli.load.driver import reload as reload
from korch_cli.load.file import describe_file as describe_file
from korch_cli.load.optimised import name_nodes as name_nodes
from korch_cli.load.optimised import vendor_profile as vendor_profile
from korch_cli.load.unroll import unroll as unroll
from korch_cli.load.whole import WholeModel as WholeModel
from korch_cli.load.whole import read_whole as read_whole
