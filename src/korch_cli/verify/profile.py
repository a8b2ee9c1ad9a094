"""What each node of a model costs, by ONNX Runtime's own profiler."""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from korch_cli.core.record import NodeTime
from korch_cli.core.types import Array
from korch_cli.verify.child import Subject, child
from korch_cli.verify.speed import explained

_RUNS = 20
_SUFFIX = "_kernel_time"


def profile_nodes(subject: Subject, feeds: Mapping[str, Array], *, threads: int) -> tuple[NodeTime, ...]:
    """Return the nodes that ONNX Runtime executes and the time in each, the costliest first.

    They are the nodes after ONNX Runtime's optimisations. The profiler itself takes part in these times, so that they
    add up to more than an undisturbed run.

    Raises:
        MissingError: ONNX Runtime refuses the library.
        ModelError: the model does not run.
    """
    with tempfile.TemporaryDirectory(prefix="korch-profile-") as scratch:
        prefix = Path(scratch) / "profile"
        with explained(subject), child() as process:
            process.open(subject, threads, profile_prefix=prefix)
            written = process.profile(feeds, _RUNS + 1)
        events = json.loads(written.read_text(encoding="utf-8"))
        domains = _domains(prefix.with_suffix(".onnx"))
    return _node_times(events, domains)


def _node_times(events: Iterable[Mapping[str, Any]], domains: Mapping[tuple[str, str], str]) -> tuple[NodeTime, ...]:
    durations: dict[tuple[str, str], list[float]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX):
            key = event["name"].removesuffix(_SUFFIX), event["args"]["op_name"]
            durations.setdefault(key, []).append(float(event["dur"]))
    times = {key: _per_run(values) for key, values in durations.items()}
    total = sum(times.values()) or 1.0
    nodes = (
        NodeTime(name, op, domains.get((name, op), domains.get(("", op), "")), time, time / total)
        for (name, op), time in times.items()
    )
    return tuple(sorted(nodes, key=lambda node: (-node.time_us, node.name)))


def _per_run(durations: list[float]) -> float:
    """Return the median time per run without the first run; a node in a loop runs several times in each."""
    each, rest = divmod(len(durations), _RUNS + 1)
    if rest or not each:
        return sum(durations) / (_RUNS + 1)
    return statistics.median(sum(durations[i * each : (i + 1) * each]) for i in range(1, _RUNS + 1))


def _domains(optimised: Path) -> dict[tuple[str, str], str]:
    """Return domains by the name and the operator of a node, and by "" and the operator: the profile tells none."""
    try:
        proto = onnx.load(optimised, load_external_data=False)
    except (OSError, DecodeError):
        return {}
    named = {(n.name, n.op_type): n.domain for n in proto.graph.node}
    domains = {**{("", n.op_type): n.domain for n in proto.graph.node}, **named}
    return {key: "" if domain == "ai.onnx" else domain for key, domain in domains.items()}
