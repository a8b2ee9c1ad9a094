"""Compilers, content-addressed builds, and child processes with limits."""

from korch_cli.toolchain.build import BuildFailure as BuildFailure
from korch_cli.toolchain.build import compile_units as compile_units
from korch_cli.toolchain.build import link as link
from korch_cli.toolchain.compiler import Compiler as Compiler
from korch_cli.toolchain.compiler import find_compiler as find_compiler
from korch_cli.toolchain.nvrtc import CudaCompiler as CudaCompiler
from korch_cli.toolchain.nvrtc import compile_images as compile_images
from korch_cli.toolchain.nvrtc import find_nvrtc as find_nvrtc
