"""What was predicted of a plan, beside what was measured while the machine ran at another pace."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_repeated_searches import GRAPH, searching

from korch_cli.core.model import Model
from korch_cli.core.record import Comparison, Ratio, Samples
from korch_cli.measure import ProfileStore
from korch_cli.pipeline.delivery import Outcome
from korch_cli.pipeline.summary import _prediction
from korch_cli.pipeline.ways import WRITTEN, Way, Ways

MODEL = Model(None, (), (), (), {}, {}, {}, 17, None)  # type: ignore[arg-type]
ONE_WAY = Ways(MODEL, GRAPH, (Way(WRITTEN, MODEL, GRAPH, (0, 1, 2, 3), (0, 1, 2)),))


@pytest.mark.parametrize("pace", [0.5, 1.0, 2.0])
def test_a_prediction_is_compared_at_one_pace(tmp_path: Path, pace: float) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    store = ProfileStore(folder)
    search = searching(tmp_path, store, {(1, 2, 3): 6.0})
    # ONNX Runtime's three kernels cost 15 us, the plan 6 us; in the comparison both took `pace` times as long.
    samples = (Samples("input", (7.0, pace * 15.0, 99.0)), Samples("output", (1.0, pace * 6.0, 99.0)))
    comparison = Comparison(samples, (Ratio(2.5, 2.4, 2.6, 9),), 1, ())
    found = _prediction(search, ONE_WAY, Outcome(None, "", comparison=comparison, predicted_us=6.0))
    store.close()
    assert found is not None
    assert (found.predicted_us, found.measured_us) == (6.0, pace * 6.0)
    assert found.input_us == 15.0
    assert found.ratio == pytest.approx(1.0)


def test_nothing_is_predicted_of_what_was_not_compared(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    store = ProfileStore(folder)
    assert _prediction(searching(tmp_path, store, {}), ONE_WAY, Outcome(None, "")) is None
    store.close()
