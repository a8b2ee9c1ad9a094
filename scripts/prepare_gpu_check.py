"""Prepare, on a machine without a GPU, what `gpu_check` runs on one that may have little else installed.

Compiles kernels of every schedule and element type at odd sizes, those of scripts/gpu_workloads.py, and those of
models that `korch optimize --target cuda` wrote, each for every architecture given.

    python -m scripts.prepare_gpu_check -o build/gpu-check
    python -m scripts.prepare_gpu_check -o build/gpu-check --arch sm_90,sm_80 --model in.onnx out.onnx
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from korch_cli.codegen import cuda_headers, generate_cuda
from korch_cli.core.errors import KorchError
from korch_cli.core.gpu import Image, capability_of
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import KernelBody
from korch_cli.core.launch import CudaKernel
from korch_cli.core.model import Bindings
from korch_cli.core.progress import Silent
from korch_cli.core.text import parse_graph, print_graph
from korch_cli.emit import read_plan
from korch_cli.measure import ProfileStore
from korch_cli.pipeline import Settings
from korch_cli.pipeline.digest import file_digest
from korch_cli.pipeline.prepare import prepare
from korch_cli.pipeline.rebuild import bindings_of_plan, planned_search, planned_settings
from korch_cli.pipeline.target import find_tools, make_target
from korch_cli.pipeline.ways import find_ways
from korch_cli.toolchain import CudaCompiler, compile_images, find_nvrtc
from korch_cli.version import __version__
from scripts.gpu_bench import SIZES, WORKLOADS
from scripts.gpu_plans import Plans, PreparedKernel, write_plans
from scripts.gpu_workloads import DTYPES, workloads
from tests.unit.codegen import test_cuda_kernels as cases
from tests.unit.codegen.body_graphs import softmax

_ARCHS = "sm_80,sm_86,sm_89,sm_90,sm_100,sm_120"
_SIZES = (1, 2, 7, 37, 131, 1031)
_MOST_ELEMENTS = 1 << 22
"""Of a model's kernel that is checked: its reference is computed by numpy, in seconds that count."""


def main() -> None:
    """Do what the command line says."""
    arguments = _parser().parse_args()
    folder = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    try:
        nvrtc = find_nvrtc()
        archs = tuple(arguments.arch.split(","))
        nvrtc.require(archs)
        found = catalogue()
        models = {}
        for source, output in arguments.model:
            found += kernels_of_model(source, output)
            models[source.stem] = copy_model(source, output, folder)
        prepared = prepared_kernels(found, nvrtc, archs, folder, arguments.jobs)
    except KorchError as error:
        sys.exit(f"{error.message}: {error.hint}")
    versions = {"korch": __version__, "nvrtc": ".".join(map(str, nvrtc.version)), "archs": ",".join(archs)}
    write_plans(Plans(versions, prepared, models), folder)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{len(prepared)} kernels, {len(models)} models, {size / 2**20:.1f} MiB in {folder}")


Found = tuple[str, str, PrimitiveGraph, CudaKernel]
"""Group, label, body, kernel."""


def prepared_kernels(
    found: Sequence[Found], nvrtc: CudaCompiler, archs: Sequence[str], folder: Path, jobs: int
) -> tuple[PreparedKernel, ...]:
    """Compile kernels and put their images into the folder. Raises KorchError: one does not compile."""
    units = {kernel.name: kernel.source for _, _, _, kernel in found}
    with tempfile.TemporaryDirectory() as scratch:
        made = compile_images(nvrtc, units, cuda_headers(), archs, Path(scratch), jobs=jobs, progress=Silent())
        images: dict[str, list[Image]] = {name: [] for name in units}
        for (name, arch), image in made.items():
            if not isinstance(image, Image):
                raise KorchError(f"a kernel does not compile for {arch}: {image.sentence}", where=name)
            shutil.copyfile(image.path, folder / f"{name}.{arch}.cubin")
            images[name].append(image)
    return tuple(
        PreparedKernel(
            group,
            label,
            print_graph(graph),
            replace(kernel, source=""),
            {capability_of(image.arch): f"{kernel.name}.{image.arch}.cubin" for image in images[kernel.name]},
            {capability_of(image.arch): image.resources for image in images[kernel.name]},
        )
        for group, label, graph, kernel in found
    )


def catalogue() -> list[Found]:
    """Return kernels of every schedule and element type at odd sizes, and those of the workloads."""
    return [*_sizes(), *_workloads()]


def kernels_of(group: str, label: str, graph: PrimitiveGraph) -> Iterator[Found]:
    """Yield every kernel of a graph."""
    body = KernelBody("digest", graph, tuple(value.id for value in graph.inputs()), graph.outputs)
    for kernel in generate_cuda(body):
        yield group, f"{label}; {kernel.schedule}", graph, kernel


def _sizes() -> Iterator[Found]:
    for dtype in (*cases.FLOATS, *cases.INTEGERS):
        for label, graph in _bodies(dtype):
            yield from kernels_of(SIZES, f"{label}, {dtype}", graph)
    for dtype in cases.FLOATS:
        for label, graph in _split(dtype):
            yield from kernels_of(SIZES, f"{label}, {dtype}", graph)


def _bodies(dtype: str) -> Iterator[tuple[str, PrimitiveGraph]]:
    functions = ("max", "min") if dtype == "bool" else ("sum", "max")
    yield "points", cases.pointwise(dtype, "4099", "1")
    yield "points, broadcast", cases.pointwise(dtype, "2,5,7,7", "1,5,1,1")
    yield "transpose", cases.transpose(dtype, "37,41", "41,37", "1,0")
    for n in _SIZES:
        yield f"rows of {n}", cases.reduction(dtype, functions, f"5,{n}", "1", "5,1")
    yield "columns", cases.reduction(dtype, functions, "131,35", "0", "1,35")
    if dtype in cases.FLOATS:
        for n in (*_SIZES, 4099):
            yield f"softmax of {n}", softmax(dtype, f"3,{n}", "1", "3,1")
        yield "softmax of columns", softmax(dtype, "2,37,19", "1", "2,1,19")
        yield "normalization", cases.normalization(dtype, "5,131", "1", "5,1", "131")
        yield "windows", cases.stencil(dtype)
        yield "small products", cases.small_product(dtype)


def _split(dtype: str) -> tuple[tuple[str, PrimitiveGraph], ...]:
    """Reductions that are long enough to be split into launches."""
    return (
        ("split softmax", softmax(dtype, "2,300007", "1", "2,1")),
        ("split normalization", cases.normalization(dtype, "1,300007", "1", "1,1", "300007")),
        ("split columns", cases.reduction(dtype, ["sum"], "50003,35", "0", "1,35")),
    )


def _workloads() -> Iterator[Found]:
    for workload in workloads():
        for dtype in DTYPES:
            graph = parse_graph(workload.text(dtype))
            yield from kernels_of(WORKLOADS, f"{workload.name}, {dtype}", graph)


def kernels_of_model(source: Path, output: Path) -> Iterator[Found]:
    """Yield the kernels of a plan that was made for CUDA, without very large ones."""
    for graph, kernel in planned_kernels(source, output):
        if most_elements(graph) <= _MOST_ELEMENTS:
            yield source.stem, kernel.schedule, graph, kernel


def planned_kernels(source: Path, output: Path) -> Iterator[tuple[PrimitiveGraph, CudaKernel]]:
    """Yield every kernel of a plan that was made for CUDA, with its body. Raises KorchError: it is another model's."""
    path = output.with_suffix(".plan.json")
    document = read_plan(path)
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(source, Path(scratch) / "out.onnx", plan=path)
        bindings = bindings_of_plan(document, Bindings({}, {}), file_digest(source), path)
        settings = planned_settings(replace(settings, bindings=bindings), document)
        prepared = prepare(settings, Path(scratch))
        ways = find_ways(prepared.unrolled.flat, prepared.rewritten)
        (Path(scratch) / "store").mkdir()
        store = ProfileStore(Path(scratch) / "store")
        try:
            target = make_target(settings, find_tools(settings), store, Path(scratch), ways.model)
            search, _ = planned_search(settings, ways, document, target, Silent())
        finally:
            store.close()
    for digest, candidate in search.laboratory.representatives.items():
        kernel, _ = search.laboratory.best(digest)
        if isinstance(kernel, CudaKernel):
            yield ways.cut(candidate).graph, kernel


def most_elements(graph: PrimitiveGraph) -> int:
    """Return the number of elements of the largest value of a body."""
    return max(value.type.elements for value in graph.values)


def copy_model(source: Path, output: Path, folder: Path) -> dict[str, Any]:
    """Copy a model, what was made of it, and the library; return how to find them."""
    made = folder / f"{source.stem}.cuda.onnx"
    shutil.copyfile(source, folder / source.name)
    for suffix in (".onnx", ".korch.so", ".plan.json"):
        shutil.copyfile(output.with_suffix(suffix), made.with_suffix(suffix))
    shapes = json.loads(output.with_suffix(".plan.json").read_text(encoding="utf-8"))["shapes"]
    return {"input": source.name, "output": made.name, "shapes": shapes}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder to prepare")
    parser.add_argument("--arch", default=_ARCHS, help="architectures to compile for (default %(default)s)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="compilers at the same time")
    parser.add_argument(
        "--model",
        type=Path,
        nargs=2,
        action="append",
        default=[],
        metavar=("IN", "OUT"),
        help="a model and what korch optimize --target cuda made of it; may be repeated",
    )
    return parser


if __name__ == "__main__":
    main()
