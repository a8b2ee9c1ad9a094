"""Kernel bodies to C++ text: pure functions, no compiler."""

from korch_cli.codegen.generate import generate as generate
from korch_cli.codegen.generate import headers as headers
