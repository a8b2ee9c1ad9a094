"""What `korch inspect` found, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from korch_cli.core.inspection import CandidateRecord, FileRecord, InspectRecord, InstalledKernel, PortRecord
from korch_cli.report.table import align, count, format_bytes, format_us
from korch_cli.version import __version__

_SHOWN_TYPES = 12
_SHOWN_REASONS = 12
_SHOWN_KERNELS = 8
_SHOWN_NODES = 3


def render_inspect(record: InspectRecord, *, verbose: bool = False) -> str:
    """Return what korch makes of a model; `verbose` lists every operator type, opaque operator, reason and kernel."""
    blocks = [
        [f"korch {__version__} · {PurePath(record.model).name}", *_file(record.file), *_totals(record)],
        [*_ports("input", record.inputs), *_ports("output", record.outputs)],
        _output(record, verbose),
        _tally("operators", record.operators, None if verbose else _SHOWN_TYPES),
        _primitives(record),
        _opaque(record, verbose),
        _candidates(record.candidates, None if verbose else _SHOWN_REASONS),
        [f"  note: {note}" for note in record.notes],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _file(file: FileRecord) -> list[str]:
    opsets = ", ".join(f"{domain} {version}" for domain, version in file.opsets.items())
    producer = f" · written by {file.producer}" if file.producer else ""
    lines = [f"  IR version {file.ir_version} · opsets: {opsets}{producer}"]
    functions = f", {count(file.functions, 'function')}" if file.functions else ""
    weights = f"{count(file.tensors, 'tensor')} of {format_bytes(file.size_bytes)}"
    lines.append(f"  in the file: {count(file.nodes, 'node')}{functions}, {weights}")
    lines += [
        f"  external data: {external.name}, {count(external.tensors, 'tensor')} of {format_bytes(external.size_bytes)}"
        for external in file.external
    ]
    return lines


def _totals(record: InspectRecord) -> list[str]:
    primitives = sum(p.count for p in record.primitives)
    operators = count(sum(record.operators.values()), "operator")
    return [f"  {operators} → {count(primitives, 'primitive')} · opaque {len(record.opaque)}"]


def _ports(role: str, ports: Sequence[PortRecord]) -> list[str]:
    return [f"  {role} {port.name!r}: {_type(port)}" for port in ports]


def _type(port: PortRecord) -> str:
    if port.dtype is None or port.shape is None:
        return "not known before the model runs"
    return f"{port.dtype}[{','.join(map(str, port.shape))}]"


def _output(record: InspectRecord, verbose: bool) -> list[str]:
    output = record.output
    if output is None:
        return []
    if not output.kernels:
        return [f"  korch left this model unchanged: {output.reason}"]
    nodes = sum(kernel.uses for kernel in output.kernels)
    lines = [f"  korch wrote this model: {count(nodes, 'node')} of {record.file.nodes:,} run its kernels"]
    if output.reason is not None:
        lines.append(f"  {output.reason}")
    lines.append(f"  library: {output.library or 'missing; the model runs on the functions that it carries'}")
    lines.append(f"  plan: {output.plan or 'missing, or of another model'}")
    shown = output.kernels if verbose else output.kernels[:_SHOWN_KERNELS]
    rows = [["kernel", "replaces", "schedule", "uses", "time"]]
    for kernel in shown:
        time = "?" if kernel.time_us is None else format_us(kernel.time_us)
        rows.append([kernel.name, _replaced(kernel, verbose), kernel.schedule or "?", f"{kernel.uses}", time])
    lines += ["", align(rows, left=3)]
    return lines + _hidden(len(output.kernels) - len(shown))


def _replaced(kernel: InstalledKernel, verbose: bool) -> str:
    """Return the nodes that the first use replaces; all uses have the same shape."""
    if not kernel.replaces:
        return "?"
    nodes = kernel.replaces[0]
    shown = nodes if verbose else nodes[:_SHOWN_NODES]
    more = f" + {len(nodes) - len(shown)} more" if len(nodes) > len(shown) else ""
    return " + ".join(shown) + more


def _tally(title: str, numbers: Mapping[str, int], most: int | None) -> list[str]:
    """Return numbers under a title, the largest first."""
    if not numbers:
        return []
    shown = list(numbers.items())[:most]
    width = max(len(f"{number:,}") for _, number in shown)
    lines = [f"  {title}", *(f"  {number:>{width + 2},}× {name}" for name, number in shown)]
    return lines + _hidden(len(numbers) - len(shown))


def _hidden(number: int) -> list[str]:
    return [f"  and {number:,} more (-v lists them)"] if number > 0 else []


def _primitives(record: InspectRecord) -> list[str]:
    kinds: dict[str, list[str]] = {}
    totals: Counter[str] = Counter()
    for entry in record.primitives:
        totals[entry.kind] += entry.count
        kinds.setdefault(entry.kind, [])
        if entry.function:
            kinds[entry.kind].append(f"{entry.function} ×{entry.count:,}")
    named = {
        kind + (f": {', '.join(functions)}" if functions else ""): totals[kind] for kind, functions in kinds.items()
    }
    return _tally("primitives", named, None)


def _opaque(record: InspectRecord, verbose: bool) -> list[str]:
    types: dict[str, Counter[str]] = {}
    for operator in record.opaque:
        name = f"{operator.domain}::{operator.op_type}" if operator.domain else operator.op_type
        types.setdefault(operator.reason, Counter())[name] += 1
    histogram = Counter({reason: found.total() for reason, found in types.items()})
    named = {
        f"{reason} ({', '.join(f'{name} ×{number:,}' for name, number in types[reason].most_common())})": total
        for reason, total in histogram.most_common()
    }
    lines = _tally("opaque, left to ONNX Runtime", named, None if verbose else _SHOWN_REASONS)
    if verbose and record.opaque:
        rows = [["", "operator", "node", "reason"]]
        rows += [["", operator.op_type, operator.name, operator.reason] for operator in record.opaque]
        lines += ["", align(rows, left=4)]
    return lines


def _candidates(found: CandidateRecord, most: int | None) -> list[str]:
    lines = [
        f"  candidates: {count(found.enumerated, 'set')} of up to {count(found.max_primitives, 'primitive')}, "
        f"{found.distinct:,} distinct; {count(found.operators, 'operator')} of ONNX Runtime's",
    ]
    if found.tried:
        all_of_them = "all" if found.tried == found.distinct else f"{found.tried:,} (--exhaustive takes all)"
        schedules = ", ".join(f"{schedule} ×{number:,}" for schedule, number in found.accepted.items())
        accepted = f"{sum(found.accepted.values()):,} accepted" + (f" ({schedules})" if schedules else "")
        lines.append(f"  code generator asked for {all_of_them}: {accepted}")
    lines += _tally("refused by the code generator", found.refused, most)
    lines += _tally("cannot be said with standard operators", found.inexpressible, most)
    return lines + _tally("left out of the search", found.left_out, most)
