"""What `korch explain` found, as text."""

from __future__ import annotations

from pathlib import PurePath

from korch_cli.core.explanation import Choice, ExplainRecord, NodeRecord
from korch_cli.report.table import align, count, format_us
from korch_cli.version import __version__

_SHOWN_NODES = 3
_KINDS = {"operators": "ONNX Runtime", "rewritten": "ONNX Runtime, rewritten", "kernel": "generated kernel"}


def render_explain(record: ExplainRecord, *, whole: bool) -> str:
    """Return what was found; `whole` says that all nodes were asked for, each of which is then one line."""
    head = [f"korch {__version__} · {PurePath(record.model).name} · plan {format_us(record.plan_us)}"]
    if whole:
        rows = [["node", "operator", "runs as", "together with", "price"], *map(_line, record.nodes)]
        blocks = [head, [align(rows, left=4)]]
    else:
        blocks = [head, *map(_node, record.nodes)]
    return "\n\n".join("\n".join(block) for block in [*blocks, [f"  note: {note}" for note in record.notes]] if block)


def _line(node: NodeRecord) -> list[str]:
    if not node.choices:
        return [node.name, node.op_type, "nothing", "", ""]
    kinds = dict.fromkeys(_KINDS[choice.kind] for choice in node.choices)
    others = dict.fromkeys(name for choice in node.choices for name in choice.nodes if name != node.name)
    times = [choice.time_us for choice in node.choices if choice.time_us is not None]
    price = format_us(sum(times)) if times else "?"
    return [node.name, node.op_type, " and ".join(kinds), _named(tuple(others)), price]


def _node(node: NodeRecord) -> list[str]:
    rows = [["", "runs as", "computes", "price", "", "whole plan"]]
    for choice in node.choices:
        price = "?" if choice.time_us is None else format_us(choice.time_us)
        rows.append(["→" if choice.taken else "", _KINDS[choice.kind], _named(choice.nodes), price, *_cost(choice)])
    hidden = node.considered - len(node.choices)
    lines = [f"  {node.name} ({node.op_type})" if node.op_type else f"  {node.name}", align(rows, left=3)]
    return [
        *lines,
        *([f"  and {count(hidden, 'other choice')} that promised less"] if hidden else []),
        f"  {node.reason}",
    ]


def _cost(choice: Choice) -> list[str]:
    if choice.plan_us is not None:
        return [choice.source, format_us(choice.plan_us)]
    return [choice.source, "?" if choice.least_us is None else f"≥ {format_us(choice.least_us)}"]


def _named(nodes: tuple[str, ...]) -> str:
    names = " + ".join(nodes[:_SHOWN_NODES])
    hidden = len(nodes) - _SHOWN_NODES
    return f"{names} + {hidden} more" if hidden > 0 else names
