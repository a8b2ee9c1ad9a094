"""One function for each operator and opset range: it splits the operator into primitives, or declines.

A new operator is a function in the file of its family, entered into the table by `registry.fission`; a new file is
listed in `families`.
"""

from korch_cli.fission.driver import fission as fission
