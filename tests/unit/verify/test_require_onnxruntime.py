from __future__ import annotations

import importlib.util
from importlib import metadata

import onnxruntime
import pytest

from korch_cli.core.errors import ExitCode, MissingError
from korch_cli.verify import require_onnxruntime


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    def version(package: str) -> str:
        try:
            return versions[package.replace("-", "_")]
        except KeyError:
            raise metadata.PackageNotFoundError(package) from None

    monkeypatch.setattr(metadata, "version", version)


def test_the_installed_one_is_found() -> None:
    assert require_onnxruntime() == onnxruntime.__version__


@pytest.mark.parametrize("version", ["1.17.0", "1.20.1", "1.32.0.dev20260101", "2.0"])
def test_recent_versions_will_do(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    install(monkeypatch, onnxruntime_gpu=version)
    assert require_onnxruntime() == version


def test_one_without_a_package_is_asked_for_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    assert require_onnxruntime() == onnxruntime.__version__


def test_what_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, onnxruntime="1.16.3")
    with pytest.raises(MissingError, match=r"1\.16\.3 is too old"):
        require_onnxruntime()
    install(monkeypatch, onnxruntime="1.20.0", onnxruntime_gpu="1.20.0")
    with pytest.raises(MissingError, match="both onnxruntime and onnxruntime-gpu"):
        require_onnxruntime()
    install(monkeypatch)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"not installed[^$]*pip install --upgrade onnxruntime") as caught:
        require_onnxruntime()
    assert caught.value.exit_code is ExitCode.ENVIRONMENT
