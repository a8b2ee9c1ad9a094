"""Kernel bodies to C++ and CUDA text: pure functions, no compiler."""

from korch_cli.codegen.cuda import cuda_headers as cuda_headers
from korch_cli.codegen.cuda import generate_cuda as generate_cuda
from korch_cli.codegen.generate import generate as generate
from korch_cli.codegen.generate import headers as headers
