"""The values that flags take: durations, shapes, dimensions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

import click

from korch_cli.core.errors import UsageError
from korch_cli.core.size import parse_size

if TYPE_CHECKING:
    from korch_cli.core.model import Bindings

_T = TypeVar("_T")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})([smh])")
_LARGEST = 2**31 - 1
"""No tensor that a model could compute has a longer axis."""
_ARCHITECTURE = re.compile(r"sm_\d{2,3}")
_EXTENT = re.compile(r"\d{1,10}")
_SHAPE = re.compile(rf"{_EXTENT.pattern}(?:x{_EXTENT.pattern})*")


class Number(click.FloatRange):
    """A finite number of a range; what click reads as a number may be NaN or infinite, and compares as it likes."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class Duration(click.ParamType[float]):
    """Seconds, written as `90s`, `5m` or `1h`."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return seconds, more than none."""
        if isinstance(value, float):
            return value
        matched = _DURATION.fullmatch(str(value))
        seconds = float(matched[1]) * _SECONDS[matched[2]] if matched else 0.0
        if seconds <= 0:
            self.fail(f"{value!r} is not a duration; write it as 90s, 5m or 1h.", param, ctx)
        return seconds


class Size(click.ParamType[int]):
    """Bytes, written as `300MiB` or `2G`."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return bytes."""
        size = parse_size(str(value))
        if size is None:
            self.fail(f"{value!r} is not a size; write it as 300MiB or 2GiB.", param, ctx)
        return size


class Architectures(click.ParamType[tuple[str, ...]]):
    """Architectures of GPUs, written as `sm_90,sm_80`."""

    name = "sm_N[,sm_N...]"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Return them, each once."""
        if isinstance(value, tuple):
            return value
        found = tuple(dict.fromkeys(str(value).split(",")))
        if not all(_ARCHITECTURE.fullmatch(arch) for arch in found):
            self.fail(f"{value!r} names no architectures; write them as sm_90 or sm_90,sm_80.", param, ctx)
        return found


class Dimension(click.ParamType[tuple[str, int]]):
    """A symbolic dimension and its extent, written as `batch=1`."""

    name = "name=n"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return the name and the extent."""
        name, _, extent = str(value).rpartition("=")
        if not name or not _EXTENT.fullmatch(extent) or not 1 <= int(extent) <= _LARGEST:
            self.fail(
                f"{value!r} does not name a dimension and its extent, which is 1 at least; write it as batch=1.",
                param,
                ctx,
            )
        return name, int(extent)


class Shape(click.ParamType[tuple[str, tuple[int, ...]]]):
    """An input and its shape, written as `x=1x3x48x320`."""

    name = "input=shape"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, tuple[int, ...]]:
        """Return the name of the input and its extents."""
        name, _, extents = str(value).rpartition("=")
        found = tuple(map(int, extents.split("x"))) if _SHAPE.fullmatch(extents) else ()
        if not name or not found or max(found) > _LARGEST:
            self.fail(f"{value!r} does not name an input and its shape; write it as x=1x3x48x320.", param, ctx)
        return name, found


def bindings_of(dims: Iterable[tuple[str, int]], shapes: Iterable[tuple[str, tuple[int, ...]]]) -> Bindings:
    """Collect repeated `--dim` and `--shape` flags.

    Raises:
        UsageError: a name is given two values.
    """
    from korch_cli.core.model import Bindings  # it needs numpy, which `korch --version` does not

    return Bindings(_unique("--dim", dims), _unique("--shape", shapes))


def _unique(flag: str, pairs: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for name, value in pairs:
        if found.setdefault(name, value) != value:
            raise UsageError(f"{flag} gives {name!r} two different values", hint="keep one of the two")
    return found
