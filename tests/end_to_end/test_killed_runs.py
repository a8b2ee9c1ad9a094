"""Runs that are killed at any moment, and runs at the same time: the store stays whole, and figures stay the same."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import onnx
import pytest
from onnx import parser

from korch_cli.measure import ProfileStore, calibrate, prune
from korch_cli.measure.child import Worker
from korch_cli.toolchain import find_compiler

pytestmark = pytest.mark.slow

_MOMENTS = 20
_LINES = 8
"""Of what a run says on its way to a plan."""
_SLOW_COMPILER = """\
printf 'begin ' > "$5"
sleep 0.03
cat "$3" >> "$5"
sleep 0.03
printf ' end' >> "$5"
"""
"""Called with a seed, -c, the source, -o and the object: what it makes is incomplete for most of the time."""
_WRITER = """
import sys
from pathlib import Path
from korch_cli.core.progress import Silent
from korch_cli.measure import ProfileStore
from korch_cli.toolchain import Compiler, compile_units
folder, name, script = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
compiler = Compiler(("sh", script), (), "slow")
print("ready", flush=True)
sys.stdin.readline()
store = ProfileStore(folder)
print("notes", store.notes, flush=True)
for i in range(100_000):
    store.keep(f"kernel/{name}/{i}", {"i": i, "text": "x" * 3000}, dict)
    units = {f"{n}": f"{name} {i} {n}" for n in range(3)}
    compile_units(compiler, units, {}, store.objects, jobs=3, progress=Silent())
    print(i, flush=True)
"""


def _killed_writer(folder: Path, script: Path, name: str, moment: float) -> list[str]:
    """Let a process write into a store for some time, kill it, and return what it said that it had kept."""
    with subprocess.Popen(
        [sys.executable, "-c", _WRITER, str(folder), name, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        writer.stdin.write("\n")
        writer.stdin.flush()
        time.sleep(moment)
        writer.kill()
        lines = writer.stdout.read().splitlines()
    assert writer.returncode == -signal.SIGKILL
    assert all(line == "notes []" for line in lines[:1])
    return lines[1:]


def _is_whole(path: Path) -> bool:
    text = path.read_text()
    return text.startswith("begin run") and text.endswith(" end")


def test_a_writer_that_is_killed_leaves_a_whole_store(tmp_path: Path) -> None:
    script, folder = tmp_path / "compiler.sh", tmp_path / "store"
    script.write_text(_SLOW_COMPILER)
    kept: dict[str, int] = {}
    moments = random.Random(0)
    for number in range(_MOMENTS):
        # Every fourth one finds no store and is killed while it makes one, or soon after.
        place = folder if number % 4 else tmp_path / f"store{number}"
        place.mkdir(exist_ok=True)
        moment = moments.uniform(0.0, 0.5) if number % 4 else moments.uniform(0.0, 0.05)
        lines = _killed_writer(place, script, f"run{number}", moment)
        # At once: the compilers of a killed process go on for a moment.
        assert all(_is_whole(path) for path in (place / "objects").glob("*.o"))
        store = ProfileStore(place)
        assert store.notes == []
        assert store.strict("PRAGMA integrity_check") == [("ok",)]
        if place == folder:
            kept |= {f"kernel/run{number}/{line}": int(line) for line in lines}
        store.close()
    assert len(kept) > _MOMENTS
    store = ProfileStore(folder)
    documents = {key: store.read(key, lambda document: document["i"]) for key in kept}
    assert documents == kept
    assert store.notes == []
    objects = list(store.objects.glob("*.o"))
    assert len(objects) >= 3 * len(kept)
    assert all(map(_is_whole, objects))
    assert list(store.objects.glob("build-*"))
    prune(store, 1 << 30)
    assert not list(store.objects.glob("build-*"))
    store.close()


MODEL = """<ir_version: 8, opset_import: ["": 17]> g (float[64, 512] x) => (float[64, 512] y) {
    a = Tanh(x)
    b = Mul(a, x)
    y = Exp(b) }"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "in.onnx"
    onnx.save(parser.parse_model(MODEL), path)
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A store that knows limits which no machine reaches, so that whatever else runs here, a search wants kernels."""
    made = tmp_path / "cache"
    made.mkdir()
    store = ProfileStore(made)
    limits = {"bandwidth": [[1 << 27, 1e12]], "flops_per_second": 1e13}

    def build(_source: str, _exports: tuple[str, ...]) -> Path:
        return tmp_path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "ask", lambda *_: limits)
        calibrate(1, find_compiler().identity, store, build)
    store.close()
    return made


def _environment(cache: Path) -> Mapping[str, str]:
    # What a killed run leaves among temporary files goes with those of the test.
    return {**os.environ, "KORCH_CACHE_DIR": str(cache), "TMPDIR": str(cache.parent), "CI": "true"}


def _started(model: Path, output: Path, cache: Path) -> subprocess.Popen[str]:
    arguments = ["optimize", str(model), "-o", str(output), "--threads", "1", "--budget", "5m", "--format", "json"]
    return subprocess.Popen(
        [sys.executable, "-m", "korch_cli", *arguments],
        env=_environment(cache),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def _killed(run: subprocess.Popen[str], lines: int, pause_s: float, *, whole: bool) -> bool:
    """Kill a run some time after it has said so much, alone or with its children; return False if it ended before."""
    assert run.stderr is not None
    for _ in range(lines):
        if not run.stderr.readline():
            run.communicate()
            assert run.returncode == 0
            return False
    time.sleep(pause_s)
    if whole:
        os.killpg(run.pid, signal.SIGKILL)
    else:
        run.kill()
    run.communicate()
    assert run.returncode in (0, -signal.SIGKILL)
    return run.returncode != 0


def _keys(cache: Path) -> set[str]:
    """Return what is in the store without opening it as korch does."""
    connection = sqlite3.connect(cache / "profiles.sqlite")
    try:
        return {key for (key,) in connection.execute("SELECT key FROM documents")}
    finally:
        connection.close()


def test_a_run_that_is_killed_is_continued_by_the_next(model: Path, cache: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    moments = random.Random(1)
    kept: set[str] = set()
    kills = 0
    # Each stage is a line, so that the moments are spread over the life of a run however slow the machine is.
    for number in range(3 * _MOMENTS):
        with _started(model, out / "fast.onnx", cache) as run:
            kills += _killed(run, moments.randint(1, _LINES), moments.uniform(0.0, 1.0), whole=number % 2 == 1)
        assert _keys(cache) >= kept
        kept = _keys(cache)
        if kills == _MOMENTS:
            break
    assert kills == _MOMENTS
    assert any(key.startswith("kernel/") for key in kept)
    with _started(model, out / "fast.onnx", cache) as run:
        text, messages = run.communicate(timeout=300)
    assert run.returncode == 0, messages
    record = json.loads(text)
    assert record["notes"] == []
    assert all(verdict["passed"] for verdict in record["verdicts"])
    assert record["search"]["from_store"] > 0
    assert not list(cache.glob("*unreadable*"))
    assert not list((cache / "objects").glob("build-*"))
    onnx.checker.check_model(onnx.load(out / "fast.onnx"))

    # The way there does not matter: a search that knows the figures, and nothing of those that were killed, ends alike.
    connection = sqlite3.connect(cache / "profiles.sqlite")
    assert connection.execute("DELETE FROM documents WHERE key LIKE 'search/%'").rowcount == 1
    connection.commit()
    connection.close()
    with _started(model, out / "again.onnx", cache) as run:
        text, messages = run.communicate(timeout=300)
    assert run.returncode == 0, messages
    again = json.loads(text)["search"]
    assert again["measured"] == 0
    assert again["plan_us"] == record["search"]["plan_us"]
    assert (out / "again.onnx").read_bytes() == (out / "fast.onnx").read_bytes()


def test_four_runs_at_once_on_one_store_come_to_one_result(model: Path, cache: Path, tmp_path: Path) -> None:
    outputs = [tmp_path / f"{number}" / "fast.onnx" for number in range(4)]
    for output in outputs:
        output.parent.mkdir()
    runs = [_started(model, output, cache) for output in outputs]
    ended = [run.communicate(timeout=500) for run in runs]
    assert [run.returncode for run in runs] == [0] * 4, [messages for _, messages in ended]
    records = [json.loads(text) for text, _ in ended]
    assert [record["notes"] for record in records] == [[]] * 4
    assert sum(record["search"]["measured"] for record in records) > 0
    assert len({record["search"]["plan_us"] for record in records}) == 1
    assert len({json.dumps(record["comparison"]) for record in records}) == 1
    first, *others = ({p.name: p.read_bytes() for p in output.parent.iterdir()} for output in outputs)
    assert all(other == first for other in others)
    # A later run says the same.
    again = tmp_path / "again.onnx"
    with _started(model, again, cache) as run:
        text, _ = run.communicate(timeout=300)
    assert json.loads(text)["search"]["measured"] == 0
    assert again.read_bytes() == first["fast.onnx"]
