from __future__ import annotations

from korch_cli.candidates import SearchLimits, plausible
from korch_cli.core.text import parse_graph

GRAPH = parse_graph(
    "\n".join(
        [
            '%0 "x" f32[4,4] = input',
            '%1 "w" f32[4] = const',
            '%2 "one" f32[] = literal 1.0',
            '%3 "r" f32[4,4] = reshape (%0) @0',
            '%4 "m" f32[4,1] = reduce mean axes=[1] (%3) @1',
            '%5 "s" f32[1,1] = reduce sum axes=[0] (%4) @2',
            '%6 "p" f32[4,4] = linear matmul attributes={} (%3, %0) @3',
            '%7 "a" f32[4,4] = elementwise add (%3, %1) @4',
            '%8 "b" f32[4,4] = elementwise add (%7, %2) @5',
            "outputs (%5, %6, %7, %8)",
        ]
    )
)


def test_every_reason() -> None:
    assert plausible(GRAPH, (7, 8)) is None
    assert plausible(GRAPH, (3, 4, 5, 7, 8)) is None
    assert plausible(GRAPH, (3,)) == "only reshapes"
    assert plausible(GRAPH, (6,)) == "products"
    assert plausible(GRAPH, (6,), SearchLimits(max_linear=1)) is None
    assert plausible(GRAPH, (4, 5), SearchLimits(max_reduces=1)) == "reductions"
    assert plausible(GRAPH, (4, 5), SearchLimits(max_reduces=2)) is None
    assert plausible(GRAPH, (7, 8), SearchLimits(max_outputs=1)) == "outputs"
    assert plausible(GRAPH, (7, 8), SearchLimits(max_outputs=2)) is None
    # The value %3 and the weight are operands, the literal is not.
    assert plausible(GRAPH, (7, 8), SearchLimits(max_operands=1)) == "operands"
    assert plausible(GRAPH, (7, 8), SearchLimits(max_operands=2)) is None
