"""Times of CUDA kernels: estimated for a GPU by its data sheet, or measured through CuPy where there is one."""

from korch_cli.measure.cuda.catalogue import gpu_of as gpu_of
from korch_cli.measure.cuda.catalogue import known_gpus as known_gpus
from korch_cli.measure.cuda.catalogue import named_gpu as named_gpu
from korch_cli.measure.cuda.jobs import can_measure as can_measure
from korch_cli.measure.cuda.jobs import measure_cuda_kernels as measure_cuda_kernels
from korch_cli.measure.cuda.roofline import Roofline as Roofline
from korch_cli.measure.cuda.roofline import Work as Work
