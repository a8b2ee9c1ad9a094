"""The source of a library of CUDA kernels: each with its images and launches, and the function that registers them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from korch_cli.core.artifact import CudaEntry
from korch_cli.core.gpu import Image
from korch_cli.core.launch import Launch
from korch_cli.emit.library import registration, runtime_headers, signature_lines

_DRIVER, _HEADER = "korch_cuda_driver.h", "korch_ort_cuda.h"
_LINE_BYTES = 48
_BYTES = [f"\\{byte:03o}" for byte in range(256)]


def cuda_kernel_unit(entry: CudaEntry, comment: str) -> str:
    """Return the C++ unit that defines an operator, with the images of its kernel embedded.

    Args:
        entry: the kernel and its images, which are read here.
        comment: what to say above it.
    """
    kernel, name = entry.kernel, entry.kernel.name
    # A launch of no blocks is an error in CUDA, and what it would compute has no elements.
    launches = [launch for launch in kernel.launches if 0 not in launch.grid]
    lines, signature = signature_lines(name, comment, entry.inputs, entry.outputs)
    images = [_image_lines(image) for image in entry.images]
    lines += [line for text in images for line in text]
    described = ", ".join(
        f"{{{image.capability}, {'true' if image.is_ptx else 'false'}, {image.arch}}}" for image in entry.images
    )
    lines.append(f"static const korch::cuda::Image images[] = {{{described}}};")
    for i, launch in enumerate(launches):
        arguments = ", ".join(f"{{korch::cuda::Kind::{kind}, {index}}}" for kind, index in launch.arguments)
        lines.append(f"static const korch::cuda::Argument arguments{i}[] = {{{arguments}}};")
    table = ", ".join(_launch_text(i, launch) for i, launch in enumerate(launches))
    lines.append(f"static const korch::cuda::Launch launches[] = {{{table or '{}'}}};")
    *offsets, total = accumulate(kernel.scratch, initial=0)
    lines.append(f"static const size_t scratch[] = {{{', '.join(map(str, offsets)) or '0'}}};")
    lines.append(
        f"extern const korch::cuda::Kernel kernel_{name} = {{{signature}, images, {len(entry.images)}, "
        f"launches, {len(launches)}, scratch, {total}}};"
    )
    return "\n".join([f'#include "{_HEADER}"', "", *lines, ""])


def cuda_registration_unit(domain: str, names: Sequence[str]) -> str:
    """Return the C++ unit that registers kernels, by name, which other units define."""
    declared = [f"extern const korch::cuda::Kernel kernel_{name};" for name in names]
    blocks = [f'#include "{_HEADER}"', "\n".join(declared), registration("korch::cuda", domain, names)]
    return "\n\n".join(blocks) + "\n"


@cache
def cuda_library_headers() -> dict[str, str]:
    """Return the files that these units include, by name."""
    return runtime_headers("korch_ort.h", _DRIVER, _HEADER)


def _launch_text(number: int, launch: Launch) -> str:
    grid, block = (", ".join(map(str, extents)) for extents in (launch.grid, launch.block))
    return (
        f'{{"{launch.function}", {{{grid}}}, {{{block}}}, {launch.shared_bytes}, '
        f"arguments{number}, {len(launch.arguments)}}}"
    )


def _image_lines(image: Image) -> list[str]:
    """The bytes of an image as a string, which a compiler reads much faster than a list of numbers."""
    data = image.path.read_bytes()
    pieces = (data[i : i + _LINE_BYTES] for i in range(0, len(data), _LINE_BYTES))
    text = ['    "' + "".join(_BYTES[byte] for byte in piece) + '"' for piece in pieces]
    return [f"alignas(64) static const char {image.arch}[] =", *text[:-1], f"{text[-1]};"]
