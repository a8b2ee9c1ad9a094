"""A plan is built again into the same bytes, without search and timing; one that does not fit is refused."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from korch_cli.core.errors import MissingError, UsageError
from korch_cli.core.model import Bindings
from korch_cli.core.progress import Silent
from korch_cli.core.record import OptimizeRecord
from korch_cli.emit import read_plan
from korch_cli.pipeline import Settings, optimize

TEXT = """<ir_version: 8, opset_import: ["": 17]> g (bool c, float[N, 5] x) => (float[N, 5] y, float[N, 5] z)
    <float[5] w = {1, 2, 3, 4, 5.123456789}> {
    h = Mul(x, w)
    e = Exp(h)
    m = MatMul(e, square)
    square = Constant<value = float[5, 5] {1,0,0,0,0, 0,2,0,0,0, 0,0,1,0,0, 0,0,0,3,0, 0,0,0,0,1}>()
    z = Tanh(m)
    y = If (c) <then_branch = a () => (float[4, 5] t) { s = Sigmoid(h) t = Mul(s, z) },
                else_branch = b () => (float[4, 5] t) { t = Neg(z) }> }"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "cache"))
    proto = parser.parse_model(TEXT)
    path = tmp_path / "in.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def made(source: Path, output: Path, **rest: Any) -> OptimizeRecord:
    return optimize(Settings(source, output, **rest), Silent())


def planned(source: Path, output: Path) -> Path:
    record = made(source, output, bindings=Bindings({"N": 4}, {}), force_fusion=True)
    assert record.changed
    return output.with_suffix(".plan.json")


def test_the_same_bytes_come_out(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = tmp_path / "first.onnx"
    plan = planned(source, first)
    monkeypatch.setenv("KORCH_CACHE_DIR", str(tmp_path / "another"))
    second = tmp_path / "second.onnx"
    record = made(source, second, plan=plan)
    assert record.changed
    assert record.search.measured == 0
    assert record.comparison is None
    assert [verdict.passed for verdict in record.verdicts] == [True, True, True]
    assert {kernel.share_of_limit for kernel in record.kernels} == {None}
    assert second.read_bytes() == first.read_bytes()
    assert len(list(tmp_path.glob("second.*"))) == 3
    again = json.loads((tmp_path / "second.plan.json").read_text(encoding="utf-8"))
    before = json.loads(plan.read_text(encoding="utf-8"))
    assert {**again, "reason": ""} == {**before, "reason": ""}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="levels are those of x86-64")
def test_a_library_is_built_for_the_processor_that_the_plan_names(source: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / f"{name}.onnx" for name in ("first", "second", "third"))
    record = made(source, first, bindings=Bindings({"N": 4}, {}), force_fusion=True, processor="x86-64-v3")
    assert record.environment["cpu"] == "x86-64-v3"
    plan = first.with_suffix(".plan.json")
    assert read_plan(plan)["cpu"] == "x86-64-v3"
    made(source, second, plan=plan)
    made(source, third, plan=plan, processor="native")
    libraries = [path.with_suffix(".korch.so").read_bytes() for path in (first, second, third)]
    assert libraries[0] == libraries[1] != libraries[2]
    assert [b"x86-64-v3\0" in library for library in libraries] == [True, True, False]
    assert "cpu" not in read_plan(third.with_suffix(".plan.json"))


def test_nothing_is_built_for_a_processor_that_this_machine_is_not(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korch_cli.measure.identity._processor", lambda: ("Eniac", "decimal accumulators"))
    with pytest.raises(MissingError, match=r"cannot run kernels for native: it has no .*, ") as refused:
        made(source, tmp_path / "out.onnx", bindings=Bindings({"N": 4}, {}))
    assert "--cpu" in str(refused.value.hint)
    assert not list(tmp_path.glob("out.*"))


def test_a_plan_that_changes_nothing(source: Path, tmp_path: Path) -> None:
    plan = planned(source, tmp_path / "first.onnx")
    document = json.loads(plan.read_text(encoding="utf-8"))
    kept = {name: document[name] for name in ("schema", "model_sha256")}
    plan.write_text(json.dumps({**kept, "changed": False, "reason": ""}), encoding="utf-8")
    record = made(source, tmp_path / "second.onnx", plan=plan, bindings=Bindings({"N": 4}, {}))
    assert not record.changed
    assert (tmp_path / "second.onnx").read_bytes() == source.read_bytes()


def another_model(document: dict[str, Any]) -> None:
    document["model_sha256"] = "00" * 32


def another_value(document: dict[str, Any]) -> None:
    next(step for step in document["sequence"] if "kernel" in step)["values"].append("nonsense")


def another_node(document: dict[str, Any]) -> None:
    document["sequence"].append({"nodes": ["nonsense"]})


def another_text(document: dict[str, Any]) -> None:
    for entry in (*document["kernels"], *document["sequence"]):
        for field in {"name", "kernel"} & entry.keys():
            entry[field] += "0"


def another_schema(document: dict[str, Any]) -> None:
    document["schema"] = "korch.plan/999"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (another_model, "another model"),
        (another_value, "a value"),
        (another_node, "a node"),
        (another_text, "another text"),
        (another_schema, "schema"),
    ],
)
def test_a_plan_that_does_not_fit(source: Path, tmp_path: Path, change: Any, word: str) -> None:
    plan = planned(source, tmp_path / "first.onnx")
    document = json.loads(plan.read_text(encoding="utf-8"))
    change(document)
    plan.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UsageError, match=word):
        made(source, tmp_path / "second.onnx", plan=plan)
    assert not list(tmp_path.glob("second*"))


@pytest.mark.parametrize("content", [None, "", "no json", "[]"])
def test_what_is_no_plan(source: Path, tmp_path: Path, content: str | None) -> None:
    plan = tmp_path / "plan.json"
    if content is not None:
        plan.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError):
        made(source, tmp_path / "out.onnx", plan=plan)


def test_the_kernels_of_bodies_are_built_again_too(source: Path, tmp_path: Path) -> None:
    plan = planned(source, tmp_path / "first.onnx")
    made(source, tmp_path / "second.onnx", plan=plan)
    graph = onnx.load(tmp_path / "second.onnx").graph
    branches = [a.g for node in graph.node for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    assert len(branches) == 2
    assert all(any(node.domain.startswith("korch.") for node in branch.node) for branch in branches)


@pytest.mark.parametrize("obstacle", ["/proc/korch", "damaged"])
def test_a_store_that_cannot_be_had_costs_no_result(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    if obstacle == "damaged":
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache" / "profiles.sqlite").write_text("this is no database" * 1000)
    else:
        monkeypatch.setenv("KORCH_CACHE_DIR", obstacle)
    record = made(source, tmp_path / "first.onnx", bindings=Bindings({"N": 4}, {}), force_fusion=True)
    assert record.changed
    word = "unreadable" if obstacle == "damaged" else "Nothing that was measured is kept"
    assert len([note for note in record.notes if word in note]) == 1


_READ = {
    ("kernels",),
    ("sequence",),
    ("shapes",),
    ("kernels", "name"),
    ("kernels", "time_us"),
    ("sequence", "values"),
    ("sequence", "way"),
}


def places(part: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to all parts of a document, of lists to the first element alone."""
    inner = part.items() if isinstance(part, dict) else list(enumerate(part))[:1] if isinstance(part, list) else ()
    return [found for key, held in inner for found in ((*path, key), *places(held, (*path, key)))]


def test_a_damaged_plan_is_the_users_wherever_it_is_damaged(source: Path, tmp_path: Path) -> None:
    sound = json.loads(planned(source, tmp_path / "a.onnx").read_text(encoding="utf-8"))
    needed = ("model_sha256", "shapes", "kernels", "sequence", "cost_us", "bound_us", "status")
    paths = [p for p in places({key: sound[key] for key in needed}) if p[:1] + p[2:] in _READ or len(p) == 1]
    assert len(paths) > len(needed) + 4
    for path in paths:
        document = json.loads(json.dumps(sound))
        part = document
        for key in path[:-1]:
            part = part[key]
        # No JSON of another program's, and still what Python reads: numbers that are none, or are too large.
        beyond = [float("nan"), float("inf"), 10**400] if isinstance(part[path[-1]], float) else []
        for wrong in (None, *beyond):
            part[path[-1]] = wrong
            damaged = tmp_path / "damaged.json"
            damaged.write_text(json.dumps(document), encoding="utf-8")
            with pytest.raises(UsageError, match="damaged"):
                read_plan(damaged)


def test_a_plan_beyond_all_measure_is_the_users(source: Path, tmp_path: Path) -> None:
    sound = json.loads(planned(source, tmp_path / "a.onnx").read_text(encoding="utf-8"))
    damaged = tmp_path / "damaged.json"
    damaged.write_text(json.dumps(sound | {"shapes": {"x": [2**31]}}), encoding="utf-8")
    with pytest.raises(UsageError, match="damaged"):
        read_plan(damaged)
    damaged.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(UsageError, match="no JSON"):
        read_plan(damaged)
