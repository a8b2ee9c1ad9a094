from __future__ import annotations

import pytest

from korch_cli.core.inspection import (
    CandidateRecord,
    ExternalFile,
    FileRecord,
    InspectRecord,
    InstalledKernel,
    OpaqueRecord,
    OutputRecord,
    PortRecord,
    PrimitiveCount,
)
from korch_cli.core.record import (
    Comparison,
    ContestantRecord,
    DryRunRecord,
    KernelRecord,
    KernelTime,
    NodeTime,
    OptimizeRecord,
    OutputError,
    PartRecord,
    Prediction,
    Ratio,
    ReduceRecord,
    Samples,
    SearchRecord,
    Verdict,
)


@pytest.fixture
def comparison() -> Comparison:
    return Comparison(
        samples=(Samples("input", (10_000.0, 12_000.0, 11_000.0)), Samples("output", (5_000.0, 5_500.0, 6_000.0))),
        ratios=(Ratio(2.0, 1.6, 2.5, 40),),
        threads=2,
        warnings=("The machine is loaded.",),
    )


@pytest.fixture
def verdicts() -> tuple[Verdict, ...]:
    good = OutputError("prob", 3.1e-6, 2.0e-5, (0, 417), 0, 1000)
    bad = OutputError("logits", float("inf"), float("nan"), (3,), 7, 10)
    return (
        Verdict(True, "with the library", 1e-4, 1e-5, 5, (good,)),
        Verdict(False, "without it", 1e-4, 1e-5, 1, (good, bad)),
        Verdict(False, "as it is", 1e-4, 1e-5, 1, (), "The model 'b' did not run: it crashed."),
    )


@pytest.fixture
def nodes() -> tuple[NodeTime, ...]:
    return (NodeTime("softmax", "Softmax", "", 25.0, 0.25), NodeTime("k0", "k_abc", "korch.12", 75.0, 0.75))


@pytest.fixture
def kernel_times() -> tuple[KernelTime, ...]:
    names = (("a", "b", "c", "d"), ("e", "f", "g", "h"))
    return (KernelTime("k_abc", 2, names, "row", 8192, 150_000.0, 40.0, 10.0, "arithmetic", 0.25),)


@pytest.fixture
def record(comparison: Comparison, verdicts: tuple[Verdict, ...]) -> OptimizeRecord:
    kernels = tuple(
        KernelRecord(f"k_{i:02}", ("a", "b", "c", "d", "e"), "row", 2, 50.0, None if i else 90.0, 4096, 1500.0, 0.5)
        for i in range(10)
    )
    return OptimizeRecord(
        model="folder/model.onnx",
        written=("out.onnx", "out.korch.so", "out.plan.json"),
        changed=True,
        reason="2.00 times as fast as the input model.",
        search=SearchRecord(
            415, 612, 4812, 731, 43, 688, {"no schedule": 12}, 5, "feasible", 8900.0, 8800.0, 12460.0, 0.011, 4.24, 240
        ),
        kernels=kernels,
        verdicts=verdicts,
        comparison=comparison,
        opaque=(("LRN", 2, "no function for it"), ("NonMaxSuppression", 1, "its shape is unknown")),
        guilty=(("k_bad", "It differs."),),
        notes=("Input 'x' was bound to 1x3x48x320.",),
        environment={"korch": "0.1.0", "machine": "cpu, 2 threads"},
        seconds={"load": 1.0, "search": 133.4},
        contest=(
            ContestantRecord("no kernels", 0, None, 12_000.0, Ratio(0.99, 0.97, 1.02, 9), False),
            ContestantRecord("the best sum", 20, 8900.0, 9_000.0, Ratio(1.3, 1.2, 1.4, 9), True),
        ),
        prediction=Prediction(8900.0, 10_000.0, None, 0.89),
    )


@pytest.fixture
def expected() -> DryRunRecord:
    return DryRunRecord(
        model="folder/model.onnx",
        operators=415,
        primitives=612,
        opaque=(("LRN", 2, "no function for it"),),
        candidates=4812,
        distinct=731,
        rejected={"no schedule": 12},
        looked_up=200,
        kernels=380,
        stored=40,
        vendor_us=12_000.0,
        bound_us=8_000.0,
        hopeless=False,
        searched=False,
        to_measure=300,
        search_seconds=200.0,
        budget_s=600.0,
        notes=("Input 'x' was bound to 1x3.",),
        environment={"korch": "0.1.0"},
        seconds={"load": 1.0},
    )


@pytest.fixture
def inspected() -> InspectRecord:
    file = FileRecord(
        "exporter 1.2",
        8,
        {"ai.onnx": 17},
        40,
        3,
        12,
        5 << 20,
        (ExternalFile("m.data", 7, 4 << 20),),
        {"korch.12": {"k_a": 2, "k_b": 1}},
    )
    kernels = (
        InstalledKernel("k_a", 2, 12.5, "row", (("a", "b", "c", "d"), ("e", "f", "g", "h"))),
        InstalledKernel("k_b", 1, None, None, ()),
    )
    return InspectRecord(
        model="folder/m.onnx",
        file=file,
        inputs=(PortRecord("x", "f32", (1, 3)), PortRecord("s", None, None)),
        outputs=(PortRecord("y", "f16", ()),),
        operators={f"Op{i:02}": 30 - i for i in range(15)},
        primitives=(
            PrimitiveCount("elementwise", "add", 1200),
            PrimitiveCount("elementwise", "mul", 3),
            PrimitiveCount("reshape", "", 2),
        ),
        opaque=(
            OpaqueRecord("loop", "Loop", "", "it has a subgraph"),
            OpaqueRecord("if", "If", "", "it has a subgraph"),
            OpaqueRecord("mine", "Twist", "my.ops", "there is no fission of Twist"),
        ),
        candidates=CandidateRecord(
            30, 4000, 900, 300, {"pointwise": 280, "row": 5}, {"No.": 10}, {"Opset 8 cannot.": 5}, {"too many": 7}, 16
        ),
        output=OutputRecord("m.korch.so", "m.plan.json", "1.50 times as fast.", kernels),
        notes=("Input 'x' was bound to 1x3.",),
    )


@pytest.fixture
def reduction() -> ReduceRecord:
    return ReduceRecord(
        model="folder/m.onnx",
        written=("small.onnx", "small.onnx.data"),
        check=("korch", "optimize", "{}", "-o", "a b.onnx"),
        check_status=70,
        reduced=True,
        ended="minimal",
        reason="Nothing more can be left out of it.",
        before=PartRecord(672, 2, 1, 340, 5 << 20),
        after=PartRecord(2, 1, 1, 1, 900),
        operators=("Conv", "my.ops::Twist"),
        message="error: this is a bug in korch: KeyError: 'x'",
        trials=23,
        seconds=75.0,
    )
