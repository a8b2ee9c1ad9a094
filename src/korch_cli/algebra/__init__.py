"""ONNX to ONNX: models written in a form that ONNX Runtime runs faster.

A rule is one function in the file of its family, entered into the table by `rule.rule`; a new file is listed in
`families`.
"""

from korch_cli.algebra.driver import Simplified as Simplified
from korch_cli.algebra.driver import default_rules as default_rules
from korch_cli.algebra.driver import simplify as simplify
from korch_cli.algebra.union import Union as Union
from korch_cli.algebra.union import unite_models as unite_models
