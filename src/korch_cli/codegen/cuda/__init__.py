"""Kernel bodies to CUDA text: pure functions, no compiler."""

from korch_cli.codegen.cuda.generate import cuda_headers as cuda_headers
from korch_cli.codegen.cuda.generate import generate_cuda as generate_cuda
