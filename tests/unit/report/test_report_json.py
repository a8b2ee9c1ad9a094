from __future__ import annotations

import dataclasses
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from korch_cli.core.errors import ExitCode
from korch_cli.core.explanation import Choice, ExplainRecord, NodeRecord
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
from korch_cli.core.storage import CacheContent, CacheRecord
from korch_cli.report import Check, Level, Profile, SpeedUp, to_json
from korch_cli.version import __version__

_KINDS = ("optimize", "dry-run", "profile", "verify", "doctor", "inspect", "explain", "reduce", "cache")
_RECORDS = (
    CacheContent,
    CandidateRecord,
    Check,
    Choice,
    Comparison,
    ContestantRecord,
    ExternalFile,
    FileRecord,
    InstalledKernel,
    KernelRecord,
    KernelTime,
    NodeRecord,
    NodeTime,
    OpaqueRecord,
    OutputError,
    OutputRecord,
    PartRecord,
    PortRecord,
    Prediction,
    PrimitiveCount,
    Ratio,
    Samples,
    SearchRecord,
    SpeedUp,
    Verdict,
)
_WHOLE = {
    "optimize": OptimizeRecord,
    "dry-run": DryRunRecord,
    "inspect": InspectRecord,
    "explain": ExplainRecord,
    "reduce": ReduceRecord,
    "cache": CacheRecord,
}


def _schema(kind: str) -> dict[str, Any]:
    text = files("korch_cli.report").joinpath("schemas", f"{kind}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _strict(value: str) -> float:
    raise AssertionError(f"{value} is not JSON")


def _load(kind: str, record: object, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_json(kind, record, code), parse_constant=_strict)
    jsonschema.validate(document, _schema(kind), cls=jsonschema.Draft202012Validator)
    return document


def test_optimize_documents_hold_every_field(record: OptimizeRecord) -> None:
    document = _load("optimize", record)
    assert document["schema"] == "korch.optimize/1"
    assert document["korch"] == __version__
    assert document["status"] == "passed"
    assert document["exit_code"] == 0
    assert {field.name for field in dataclasses.fields(record)} <= document.keys()
    assert document["kernels"][0]["alternative_us"] == 90.0
    assert document["kernels"][1]["alternative_us"] is None
    kernels = tuple(dataclasses.replace(kernel, share_of_limit=None) for kernel in record.kernels)
    again = _load("optimize", dataclasses.replace(record, kernels=kernels))
    assert again["kernels"][0]["share_of_limit"] is None
    assert document["opaque"][0] == ["LRN", 2, "no function for it"]


def test_dry_run_documents_hold_every_field(expected: DryRunRecord) -> None:
    document = _load("dry-run", expected)
    assert document["schema"] == "korch.dry-run/1"
    assert {field.name for field in dataclasses.fields(expected)} <= document.keys()
    assert _load("dry-run", dataclasses.replace(expected, vendor_us=float("inf")))["vendor_us"] == "inf"


def test_floats_that_json_lacks_become_strings(verdicts: tuple[Verdict, ...]) -> None:
    worst = _load("verify", {"verdicts": verdicts}, ExitCode.ANSWER_IS_NO)["verdicts"][1]["worst"][1]
    assert worst["max_abs"] == "inf"
    assert worst["max_rel"] == "nan"
    negative = OutputError("x", float("-inf"), 0.0, (), 1, 1)
    verdict = dataclasses.replace(verdicts[0], worst=(negative,))
    assert _load("verify", {"verdicts": [verdict]})["verdicts"][0]["worst"][0]["max_abs"] == "-inf"


def test_the_exit_code_decides_the_status(verdicts: tuple[Verdict, ...]) -> None:
    document = _load("verify", {"verdicts": verdicts}, ExitCode.ANSWER_IS_NO)
    assert document["status"] == "failed"
    assert document["exit_code"] == 1


def test_profile_documents_keep_raw_times(
    comparison: Comparison, nodes: tuple[NodeTime, ...], kernel_times: tuple[KernelTime, ...]
) -> None:
    document = _load("profile", Profile(comparison, nodes, kernel_times))
    assert document["kernels"][0]["nodes"] == [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    samples = document["comparison"]["samples"][0]
    assert samples["times_us"] == [10_000.0, 12_000.0, 11_000.0]
    assert samples["median_us"] == 11_000.0
    assert document["comparison"]["speed_ups"][0]["ratio"]["value"] == 0.5
    assert document["nodes"][1]["domain"] == "korch.12"


def test_doctor_documents_spell_levels() -> None:
    document = _load("doctor", {"checks": (Check(Level.WARNING, "load", "9.0", "wait"),)})
    assert document["checks"] == [{"level": "warning", "subject": "load", "finding": "9.0", "advice": "wait"}]


@pytest.mark.parametrize("kind", _KINDS)
def test_schemas_are_valid_and_refuse_other_documents(kind: str) -> None:
    schema = _schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": f"korch.{kind}/2"}, schema, cls=jsonschema.Draft202012Validator)


def test_every_kind_has_a_schema_and_no_other() -> None:
    folder = Path(str(files("korch_cli.report").joinpath("schemas")))
    assert {path.stem for path in folder.glob("*.json")} == set(_KINDS)


@pytest.mark.parametrize("record_type", _RECORDS, ids=lambda t: t.__name__)
def test_schemas_require_every_field_of_the_records(record_type: type) -> None:
    described = [s["$defs"][record_type.__name__] for s in map(_schema, _KINDS) if record_type.__name__ in s["$defs"]]
    assert described
    names = {field.name for field in dataclasses.fields(record_type)}
    for definition in described:
        assert names <= set(definition["required"])
        assert set(definition["properties"]) == set(definition["required"])


def test_inspect_documents_hold_every_field(inspected: InspectRecord) -> None:
    document = _load("inspect", inspected)
    assert document["schema"] == "korch.inspect/1"
    assert {field.name for field in dataclasses.fields(inspected)} <= document.keys()
    assert document["inputs"][1] == {"name": "s", "dtype": None, "shape": None}
    assert document["output"]["kernels"][0]["replaces"] == [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    assert _load("inspect", dataclasses.replace(inspected, output=None))["output"] is None


def test_reduce_documents_hold_every_field(reduction: ReduceRecord) -> None:
    document = _load("reduce", reduction)
    assert document["schema"] == "korch.reduce/1"
    assert {field.name for field in dataclasses.fields(reduction)} <= document.keys()
    assert document["check"] == ["korch", "optimize", "{}", "-o", "a b.onnx"]
    assert document["after"]["nodes"] == 2


@pytest.mark.parametrize(("kind", "record_type"), _WHOLE.items(), ids=list(_WHOLE))
def test_schemas_require_every_field_of_the_result(kind: str, record_type: type) -> None:
    required = set(_schema(kind)["required"])
    header = {"schema", "korch", "status", "exit_code"}
    assert required == header | {field.name for field in dataclasses.fields(record_type)}
