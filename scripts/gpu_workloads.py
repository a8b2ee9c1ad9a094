"""What `gpu_check` times kernels on: bodies as primitives, and the same in torch and in CuPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

DTYPES = ("f32", "f16")
_EPSILON = 1e-5
_CHAIN = 40
_ROOT_HALF = 0.70711
"""With more digits it would be no literal, but an operand."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One body at one size.

    Attributes:
        name: of it.
        lines: the primitives, in the text form of graphs, with `{t}` for the element type.
        torch: computes the same, given the module `torch` and the operands.
        cupy: the same, given the module `cupy`.
    """

    name: str
    lines: tuple[str, ...]
    torch: Callable[..., Any]
    cupy: Callable[..., Any]

    def text(self, dtype: str) -> str:
        """Return the graph for an element type."""
        return "\n".join(line.format(t=dtype) for line in self.lines)


def workloads() -> tuple[Workload, ...]:
    """Return all of them."""
    return (
        Workload("scale, 32 Mi elements", _scale(1 << 25), _scale_in, _scale_in),
        Workload("scale, 1 Mi elements", _scale(1 << 20), _scale_in, _scale_in),
        Workload(f"{_CHAIN} products and sums, 4 Mi elements", _chain(1 << 22), _chain_in, _chain_in),
        Workload("add, layer normalization, 8192 x 1024", _layer_norm(8192, 1024), _layer_norm_torch, _layer_norm_cupy),
        Workload("bias, GELU, 4096 x 3072", _gelu(4096, 3072), _gelu_torch, _gelu_cupy),
        Workload("scale, mask, softmax, 12 x 512 x 512", _softmax(12, 512, 512), _softmax_torch, _softmax_cupy),
        Workload("instance norm, ReLU, 32 x 50176", _instance_norm(32, 50176), _instance_torch, _instance_cupy),
        Workload("SiLU gate, 4096 x 4096", _gate(4096, 4096), _gate_torch, _gate_cupy),
        Workload("transpose, add, 4096 x 2048", _transpose(4096, 2048), _transpose_in, _transpose_in),
        Workload("mean of columns, 65536 x 256", _columns(65536, 256), _columns_torch, _columns_cupy),
    )


def _scale(count: int) -> tuple[str, ...]:
    return (
        f'%0 "x" {{t}}[{count}] = input',
        '%1 "c" {t}[] = literal 0.5',
        f'%2 "y" {{t}}[{count}] = elementwise mul (%0, %1) @0',
        "outputs (%2)",
    )


def _scale_in(_module: Any, x: Any) -> Any:
    return x * 0.5


def _chain(count: int) -> tuple[str, ...]:
    lines = [f'%0 "x" {{t}}[{count}] = input', '%1 "c" {t}[] = literal 0.5', '%2 "d" {t}[] = literal 0.25']
    for i in range(_CHAIN):
        at = 3 + 2 * i
        lines.append(f'%{at} "m{i}" {{t}}[{count}] = elementwise mul (%{at - 1 if i else 0}, %1) @0')
        lines.append(f'%{at + 1} "a{i}" {{t}}[{count}] = elementwise add (%{at}, %2) @0')
    return (*lines, f"outputs (%{2 + 2 * _CHAIN})")


def _chain_in(_module: Any, x: Any) -> Any:
    for _ in range(_CHAIN):
        x = x * 0.5 + 0.25
    return x


def _centred(full: str, reduced: str, axes: str, source: int, first: int) -> list[str]:
    """Subtract the mean of value `source` and divide by the root of its variance; the result is `first` + 6."""
    d, q, v, a, t = (first + i for i in range(1, 6))
    return [
        f'%{first} "m" {{t}}{reduced} = reduce mean axes=[{axes}] (%{source}) @0',
        f'%{d} "d" {{t}}{full} = elementwise sub (%{source}, %{first}) @0',
        f'%{q} "q" {{t}}{full} = elementwise mul (%{d}, %{d}) @0',
        f'%{v} "v" {{t}}{reduced} = reduce mean axes=[{axes}] (%{q}) @0',
        f'%{a} "a" {{t}}{reduced} = elementwise add (%{v}, %0) @0',
        f'%{t} "t" {{t}}{reduced} = elementwise sqrt (%{a}) @0',
        f'%{first + 6} "n" {{t}}{full} = elementwise div (%{d}, %{t}) @0',
    ]


def _layer_norm(rows: int, width: int) -> tuple[str, ...]:
    full, reduced = f"[{rows},{width}]", f"[{rows},1]"
    return (
        f'%0 "e" {{t}}[] = literal {_EPSILON}',
        f'%1 "x" {{t}}{full} = input',
        f'%2 "r" {{t}}{full} = input',
        f'%3 "w" {{t}}[{width}] = input',
        f'%4 "b" {{t}}[{width}] = input',
        f'%5 "s" {{t}}{full} = elementwise add (%1, %2) @0',
        *_centred(full, reduced, "1", 5, 6),
        f'%13 "g" {{t}}{full} = elementwise mul (%12, %3) @0',
        f'%14 "y" {{t}}{full} = elementwise add (%13, %4) @0',
        "outputs (%14)",
    )


def _layer_norm_torch(torch: Any, x: Any, r: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.layer_norm(x + r, w.shape, w, b, _EPSILON)


def _layer_norm_cupy(cupy: Any, x: Any, r: Any, w: Any, b: Any) -> Any:
    s = x + r
    d = s - s.mean(1, keepdims=True)
    return d / cupy.sqrt((d * d).mean(1, keepdims=True) + _EPSILON) * w + b


def _gelu(rows: int, width: int) -> tuple[str, ...]:
    full = f"[{rows},{width}]"
    return (
        f'%0 "x" {{t}}{full} = input',
        f'%1 "b" {{t}}[{width}] = input',
        f'%2 "c" {{t}}[] = literal {_ROOT_HALF}',
        '%3 "h" {t}[] = literal 0.5',
        '%4 "one" {t}[] = literal 1.0',
        f'%5 "s" {{t}}{full} = elementwise add (%0, %1) @0',
        f'%6 "m" {{t}}{full} = elementwise mul (%5, %2) @0',
        f'%7 "f" {{t}}{full} = elementwise erf (%6) @0',
        f'%8 "a" {{t}}{full} = elementwise add (%7, %4) @0',
        f'%9 "g" {{t}}{full} = elementwise mul (%5, %8) @0',
        f'%10 "y" {{t}}{full} = elementwise mul (%9, %3) @0',
        "outputs (%10)",
    )


def _gelu_torch(torch: Any, x: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(x + b)


def _gelu_cupy(_cupy: Any, x: Any, b: Any) -> Any:
    from cupyx.scipy.special import erf

    s = x + b
    return 0.5 * s * (erf(s * _ROOT_HALF) + 1)


def _softmax(batch: int, rows: int, width: int) -> tuple[str, ...]:
    full, reduced = f"[{batch},{rows},{width}]", f"[{batch},{rows},1]"
    return (
        f'%0 "x" {{t}}{full} = input',
        f'%1 "k" {{t}}[{rows},{width}] = input',
        '%2 "c" {t}[] = literal 0.125',
        f'%3 "s" {{t}}{full} = elementwise mul (%0, %2) @0',
        f'%4 "a" {{t}}{full} = elementwise add (%3, %1) @0',
        f'%5 "m" {{t}}{reduced} = reduce max axes=[2] (%4) @0',
        f'%6 "d" {{t}}{full} = elementwise sub (%4, %5) @0',
        f'%7 "e" {{t}}{full} = elementwise exp (%6) @0',
        f'%8 "t" {{t}}{reduced} = reduce sum axes=[2] (%7) @0',
        f'%9 "y" {{t}}{full} = elementwise div (%7, %8) @0',
        "outputs (%9)",
    )


def _softmax_torch(torch: Any, x: Any, mask: Any) -> Any:
    return torch.softmax(x * 0.125 + mask, -1)


def _softmax_cupy(cupy: Any, x: Any, mask: Any) -> Any:
    s = x * 0.125 + mask
    e = cupy.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _instance_norm(channels: int, pixels: int) -> tuple[str, ...]:
    full, reduced = f"[{channels},{pixels}]", f"[{channels},1]"
    return (
        f'%0 "e" {{t}}[] = literal {_EPSILON}',
        f'%1 "x" {{t}}{full} = input',
        f'%2 "w" {{t}}{reduced} = input',
        '%3 "z" {t}[] = literal 0.0',
        *_centred(full, reduced, "1", 1, 4),
        f'%11 "g" {{t}}{full} = elementwise mul (%10, %2) @0',
        f'%12 "y" {{t}}{full} = elementwise max (%11, %3) @0',
        "outputs (%12)",
    )


def _instance_torch(torch: Any, x: Any, w: Any) -> Any:
    return torch.relu(torch.nn.functional.layer_norm(x, x.shape[1:], None, None, _EPSILON) * w)


def _instance_cupy(cupy: Any, x: Any, w: Any) -> Any:
    d = x - x.mean(1, keepdims=True)
    return cupy.maximum(d / cupy.sqrt((d * d).mean(1, keepdims=True) + _EPSILON) * w, 0)


def _gate(rows: int, width: int) -> tuple[str, ...]:
    full = f"[{rows},{width}]"
    return (
        f'%0 "x" {{t}}{full} = input',
        f'%1 "g" {{t}}{full} = input',
        f'%2 "s" {{t}}{full} = elementwise sigmoid (%0) @0',
        f'%3 "a" {{t}}{full} = elementwise mul (%0, %2) @0',
        f'%4 "y" {{t}}{full} = elementwise mul (%3, %1) @0',
        "outputs (%4)",
    )


def _gate_torch(torch: Any, x: Any, g: Any) -> Any:
    return torch.nn.functional.silu(x) * g


def _gate_cupy(cupy: Any, x: Any, g: Any) -> Any:
    return x / (1 + cupy.exp(-x)) * g


def _transpose(rows: int, width: int) -> tuple[str, ...]:
    return (
        f'%0 "x" {{t}}[{rows},{width}] = input',
        f'%1 "r" {{t}}[{width},{rows}] = input',
        f'%2 "t" {{t}}[{width},{rows}] = transpose perm=[1,0] (%0) @0',
        f'%3 "y" {{t}}[{width},{rows}] = elementwise add (%2, %1) @0',
        "outputs (%3)",
    )


def _transpose_in(_module: Any, x: Any, r: Any) -> Any:
    return x.T + r


def _columns(rows: int, width: int) -> tuple[str, ...]:
    return (
        f'%0 "x" {{t}}[{rows},{width}] = input',
        f'%1 "y" {{t}}[1,{width}] = reduce mean axes=[0] (%0) @0',
        "outputs (%1)",
    )


def _columns_torch(_torch: Any, x: Any) -> Any:
    return x.mean(0, keepdim=True)


def _columns_cupy(_cupy: Any, x: Any) -> Any:
    return x.mean(0, keepdims=True)
