"""Records as JSON documents; schemas/ describes each kind."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import PurePath

from korch_cli.core.errors import ExitCode
from korch_cli.core.record import Comparison, Samples
from korch_cli.report.comparison import percentile, speed_ups
from korch_cli.version import __version__

_VERSIONS = dict.fromkeys(
    ("optimize", "dry-run", "profile", "verify", "inspect", "explain", "reduce", "cache", "doctor"), 1
)
"""Rises when a reader of the previous version would misread a document; new keys alone do not raise it."""


def to_json(kind: str, record: object, exit_code: ExitCode) -> str:
    """Return a record as a document with a header that names its schema.

    Args:
        kind: a key of `_VERSIONS`: the name of the command.
        record: a dataclass or a mapping; its fields become the document's.
        exit_code: what the command returns to the shell.
    """
    header = {
        "schema": f"korch.{kind}/{_VERSIONS[kind]}",
        "korch": __version__,
        "status": "passed" if exit_code is ExitCode.OK else "failed",
        "exit_code": int(exit_code),
    }
    fields = _plain(record)
    assert isinstance(fields, dict), "a document has fields"
    return json.dumps(header | fields, indent=2, allow_nan=False)


def _plain(value: object) -> object:
    """Return a value made of what JSON has; NaN and infinities become the strings "nan", "inf" and "-inf"."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        own = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return own | _derived(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value


def _derived(value: object) -> dict[str, object]:
    """Return figures that every reader would compute from the raw ones."""
    if isinstance(value, Samples) and value.times_us:
        return {f"{name}_us": percentile(value.times_us, q) for name, q in (("median", 50), ("p5", 5), ("p95", 95))}
    if isinstance(value, Comparison):
        return {"speed_ups": [_plain(found) for found in speed_ups(value)]}
    return {}
