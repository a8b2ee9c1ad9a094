"""What ONNX Runtime runs, as candidates priced in place.

ONNX Runtime fuses operators, moves its convolutions to blocked tensors and converts in between, so the price of an
operator depends on its neighbours. A profile of the whole model, together with the graph that ONNX Runtime made of it,
tells what each of its nodes costs where it stands. Here each node, or each cluster of nodes that exchange tensors which
the model does not have, is mapped back to the operators that it replaces: those between its outputs and its inputs.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from korch_cli.candidates.operators import single_operators
from korch_cli.core.graph import PrimitiveGraph
from korch_cli.core.kernel import Arrangement, Candidate, CandidateKind, Port
from korch_cli.core.machine import VendorNode, VendorProfile
from korch_cli.core.model import Model, Operator
from korch_cli.core.plan import Priced
from korch_cli.core.primitive import Constant, Elementwise, Linear

_NCHWC = "com.microsoft.nchwc"
_BLOCKED = Arrangement.BLOCKED.value
_REORDER_US_PER_BYTE = 45e-6
"""A conversion on the machine where ONNX Runtime's blocked tensors were studied; used where a profile shows none."""
_TELLING_BYTES = 16 << 10
"""Conversions of smaller tensors do not tell what a byte costs."""
_UNSEEN_US = 1.0
"""A small operator's time, for one that no profile shows, such as a reshape that ONNX Runtime removed."""


def vendor_candidates(
    model: Model, graph: PrimitiveGraph, optimised: VendorProfile, plain: VendorProfile
) -> tuple[Priced, ...]:
    """Return ONNX Runtime's own kernels with their prices, and the conversions between arrangements.

    Args:
        model: the model that was profiled.
        graph: its primitives.
        optimised: its profile with all of ONNX Runtime's optimisations: the prices of groups of operators.
        plain: its profile with none: the prices of single operators that the other one shows only inside a group.
    """
    tensors = _Tensors(model, graph)
    groups = list(_groups(tensors, optimised))
    found: dict[tuple[tuple[int, ...], tuple[Port, ...], tuple[Port, ...]], Priced] = {}

    def offer(priced: Priced) -> None:
        candidate = priced.candidate
        key = (candidate.operators, candidate.reads, candidate.writes)
        if key not in found or priced.cost_us < found[key].cost_us:
            found[key] = priced

    alone: set[int] = set()
    for group in groups:
        candidate = tensors.candidate(group.operators, group.reads, group.writes)
        if candidate is not None:
            offer(Priced(candidate, group.time_us))
            if len(group.operators) == 1:
                alone.add(group.operators[0])
    for priced in _singles(tensors, groups, alone, plain):
        offer(priced)
    conversions = _conversions(tensors, [p.candidate for p in found.values()], optimised)
    return (*found.values(), *conversions)


@dataclass(frozen=True, slots=True)
class _Group:
    """Operators that ONNX Runtime runs as one piece; ports are tensor names with an arrangement."""

    operators: tuple[int, ...]
    reads: tuple[tuple[str, str], ...]
    writes: tuple[tuple[str, str], ...]
    time_us: float


class _Tensors:
    """The model's tensors by name, with the operators that make them and the values that they are."""

    def __init__(self, model: Model, graph: PrimitiveGraph) -> None:
        self.model, self.graph = model, graph
        self.producer = {name: o for o in model.operators for name in o.outputs if name}
        self.ids = {value.name: value.id for value in graph.values}
        for operator in model.operators:
            outputs = graph.operator_outputs.get(operator.index, ())
            self.ids.update((n, v) for n, v in zip(operator.outputs, outputs, strict=False) if n and v >= 0)
        self.operators = {o.name: o for o in model.operators}
        self.users: dict[str, list[Operator]] = {}
        for operator in model.operators:
            for name in dict.fromkeys((*operator.inputs, *operator.captures)):
                self.users.setdefault(name, []).append(operator)

    def is_constant(self, name: str) -> bool:
        """Whether this is known before the model runs, so that nothing has to write it."""
        v = self.ids.get(name)
        return v is not None and isinstance(self.graph.values[v].op, Constant)

    def between(self, writes: Iterable[str], reads: Mapping[str, str]) -> tuple[int, ...] | None:
        """Return the operators on the way from `reads` to `writes`, ascending; None where something else is needed."""
        found: set[int] = set()
        todo = [name for name in writes if name not in reads]
        while todo:
            operator = self.producer.get(todo.pop())
            if operator is None:
                return None
            if operator.index not in found:
                found.add(operator.index)
                todo += [name for name in self.taken(operator) if name not in reads]
        return tuple(sorted(found))

    def taken(self, operator: Operator) -> Iterator[str]:
        """The tensors that an operator and its subgraphs read, constants aside."""
        for name in (*operator.inputs, *operator.captures):
            if name and name not in self.model.constants and not self.is_constant(name):
                yield name

    def is_elementwise(self, operator: Operator) -> bool:
        """Whether an operator works on each element by itself."""
        body = self.graph.by_operator.get(operator.index, ())
        return bool(body) and all(isinstance(self.graph.values[v].op, Elementwise) for v in body)

    def candidate(
        self, operators: tuple[int, ...], reads: Iterable[tuple[str, str]], writes: Iterable[tuple[str, str]]
    ) -> Candidate | None:
        """Return the candidate that runs `operators`, or None if it computes nothing."""
        read = tuple(dict.fromkeys(self._ports(reads)))
        written = tuple(p for p in dict.fromkeys(self._ports(writes)) if p not in read)
        written = tuple(p for p in written if not self.graph.values[p.value].is_source)
        if not written:
            return None
        body = tuple(sorted(v for o in operators for v in self.graph.by_operator.get(o, ())))
        digest = "vendor:" + ",".join(map(str, operators))
        return Candidate(CandidateKind.VENDOR, body, read, written, digest, operators)

    def _ports(self, names: Iterable[tuple[str, str]]) -> Iterator[Port]:
        for name, arrangement in names:
            v = self.ids.get(name)
            if v is not None and not isinstance(self.graph.values[v].op, Constant):
                yield Port(v, arrangement)


@dataclass(slots=True)
class _Reading:
    """ONNX Runtime's graph in terms of the model's tensors.

    Attributes:
        names: for a tensor of ONNX Runtime's graph, the model's tensor that it holds, where that is known.
        blocked: the tensors of ONNX Runtime's graph that are blocked.
    """

    names: dict[str, str]
    blocked: set[str]

    def port(self, name: str) -> tuple[str, str] | None:
        """Return the model's tensor and its arrangement, or None for a tensor that the model does not have."""
        known = self.names.get(name)
        return None if known is None else (known, _BLOCKED if name in self.blocked else Arrangement.PLAIN.value)


def _read(tensors: _Tensors, profile: VendorProfile) -> _Reading:
    names = {name: name for name in (*tensors.producer, *tensors.ids) if name not in tensors.model.constants}
    reading = _Reading(names, set())
    present = frozenset(name for node in profile.nodes for name in (*node.outputs, *_named_outputs(tensors, node)))
    for node in profile.nodes:
        # The plain tensor keeps the model's name, which tells what the blocked one is, better than a node's name does.
        if node.op_type == "ReorderOutput" and node.outputs[0] in names:
            names.setdefault(node.inputs[0], names[node.outputs[0]])
    for node in profile.nodes:
        if node.op_type == "ReorderInput":
            reading.blocked.update(node.outputs)
            if node.inputs[0] in names:
                names[node.outputs[0]] = names[node.inputs[0]]
        elif node.op_type != "ReorderOutput" and _is_blocked(reading, node):
            reading.blocked.update(node.outputs)
            meant = _named_outputs(tensors, node)
            if len(meant) == 1:
                known = {names[name] for name in node.inputs if name in names}
                meant = (_absorbed(tensors, meant[0], known, present),)
            names.update((o, m) for o, m in zip(node.outputs, meant, strict=False) if o not in names)
    return reading


def _is_blocked(reading: _Reading, node: VendorNode) -> bool:
    return node.domain == _NCHWC or any(name in reading.blocked for name in node.inputs)


def _absorbed(tensors: _Tensors, name: str, known: set[str], present: frozenset[str]) -> str:
    """Follow what a node was called after to what it computes.

    A convolution keeps its name when ONNX Runtime adds an activation or a residual to it: an elementwise operator that
    comes next belongs to it if no other node stands for that, and if it reads nothing but what the node reads.
    """
    while len(users := tensors.users.get(name, [])) == 1 and name not in tensors.model.outputs:
        user = users[0]
        others = {other for other in tensors.taken(user) if other != name}
        if len(user.outputs) != 1 or user.outputs[0] in present or not others <= known:
            break
        if not tensors.is_elementwise(user):
            break
        name = user.outputs[0]
    return name


def _named_outputs(tensors: _Tensors, node: VendorNode) -> tuple[str, ...]:
    """Read from a node's name which of the model's tensors it computes, blocked.

    ONNX Runtime calls a blocked convolution after its output, and a fused node after the operator that it replaces
    last. The name alone decides nothing else: what the node covers is found between its tensors.
    """
    stem = re.sub(r"_nchwc(_token_\d+)?$", "", node.name)
    if stem != node.name and stem in tensors.producer:
        return (stem,)
    stem = node.name
    while stem:
        operator = tensors.operators.get(stem)
        if operator is not None:
            return operator.outputs
        stem = stem.rpartition("/")[0]
    return ()


def _groups(tensors: _Tensors, profile: VendorProfile) -> Iterator[_Group]:
    reading = _read(tensors, profile)
    for cluster in _clusters(reading, profile):
        inside = {name for node in cluster for name in node.outputs}
        reads: dict[str, str] = {}
        for node in cluster:
            for name in node.inputs:
                port = reading.port(name)
                if port is not None and name not in inside:
                    reads.setdefault(*port)
        writes = dict.fromkeys(p for node in cluster for name in node.outputs if (p := reading.port(name)) is not None)
        operators = tensors.between((name for name, _ in writes), reads)
        if not operators:
            continue
        made = {name for o in operators for name in tensors.model.operators[o].outputs}
        needed = dict.fromkeys(n for o in operators for n in tensors.taken(tensors.model.operators[o]) if n not in made)
        ports = tuple((name, reads.get(name, Arrangement.PLAIN.value)) for name in needed)
        yield _Group(operators, ports, tuple(writes), sum(node.time_us for node in cluster))


def _clusters(reading: _Reading, profile: VendorProfile) -> list[list[VendorNode]]:
    """Join nodes that exchange a tensor which the model does not have; conversions stand apart."""
    nodes = [node for node in profile.nodes if node.op_type not in ("ReorderInput", "ReorderOutput")]
    root = list(range(len(nodes)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    writer = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    for i, node in enumerate(nodes):
        for name in node.inputs:
            if name in writer and reading.port(name) is None:
                root[find(i)] = find(writer[name])
    clusters: dict[int, list[VendorNode]] = {}
    for i, node in enumerate(nodes):
        clusters.setdefault(find(i), []).append(node)
    return list(clusters.values())


def _singles(tensors: _Tensors, groups: Iterable[_Group], alone: set[int], plain: VendorProfile) -> Iterator[Priced]:
    """Every operator by itself that is no group of its own."""
    times = {node.name: node.time_us for node in plain.nodes}
    # An operator that ONNX Runtime has no kernel for is several nodes, and none of them has its name.
    split = {g.operators[0]: g.time_us for g in _groups(tensors, plain) if len(g.operators) == 1}
    around: dict[int, _Group] = {}
    for group in groups:
        linear = [o for o in group.operators if _is_linear(tensors, o)]
        if len(linear) == 1:
            around[linear[0]] = group
    for candidate in single_operators(tensors.model, tensors.graph):
        (operator,) = candidate.operators
        if operator in alone:
            continue
        if operator in around:
            # The product is nearly all of its group's work, and only the group says how it runs in place.
            yield Priced(_as_in_group(tensors, candidate, around[operator]), around[operator].time_us)
        else:
            time_us = times.get(tensors.model.operators[operator].name, split.get(operator, _UNSEEN_US))
            yield Priced(candidate, time_us)


def _as_in_group(tensors: _Tensors, candidate: Candidate, group: _Group) -> Candidate:
    """Return a product with the arrangements that it has inside its group."""
    if all(arrangement != _BLOCKED for _, arrangement in group.writes):
        return candidate
    blocked = {tensors.ids[name] for name, arrangement in group.reads if arrangement == _BLOCKED}
    reads = tuple(Port(p.value, _BLOCKED) if p.value in blocked else p for p in candidate.reads)
    return replace(candidate, reads=reads, writes=tuple(Port(p.value, _BLOCKED) for p in candidate.writes))


def _is_linear(tensors: _Tensors, operator: int) -> bool:
    return any(isinstance(tensors.graph.values[v].op, Linear) for v in tensors.graph.by_operator.get(operator, ()))


def _conversions(tensors: _Tensors, candidates: Iterable[Candidate], profile: VendorProfile) -> Iterator[Priced]:
    """Both conversions of every value that some kernel exchanges blocked.

    One that the profile does not show takes what running any node takes, and a time for each byte. The time of a small
    tensor is nearly all of the first kind, and says nothing of the second.
    """
    reading = _read(tensors, profile)
    seen: dict[tuple[int, str], float] = {}
    least_us = min((node.time_us for node in profile.nodes if node.time_us > 0), default=_UNSEEN_US)
    rates = []
    for node in profile.nodes:
        if node.op_type in ("ReorderInput", "ReorderOutput"):
            name = node.inputs[0] if node.op_type == "ReorderInput" else node.outputs[0]
            port = reading.port(name)
            v = None if port is None else tensors.ids.get(port[0])
            if v is not None:
                seen[v, node.op_type] = node.time_us
                size_bytes = tensors.graph.values[v].type.size_bytes
                if size_bytes >= _TELLING_BYTES:
                    rates.append(max(0.0, node.time_us - least_us) / size_bytes)
    rate = statistics.median(rates) if rates else _REORDER_US_PER_BYTE
    blocked = sorted({p.value for c in candidates for p in (*c.reads, *c.writes) if p.arrangement == _BLOCKED})
    for v in blocked:
        estimate_us = least_us + tensors.graph.values[v].type.size_bytes * rate
        plain_port, blocked_port = Port(v), Port(v, _BLOCKED)
        for op_type, source, target in (
            ("ReorderInput", plain_port, blocked_port),
            ("ReorderOutput", blocked_port, plain_port),
        ):
            candidate = Candidate(CandidateKind.REORDER, (), (source,), (target,), f"reorder:{op_type}:{v}")
            yield Priced(candidate, seen.get((v, op_type), estimate_us))
