from __future__ import annotations

from collections.abc import Callable

import click
import pytest
from click.testing import Result

from korch_cli.cli.entry import korch
from korch_cli.version import __version__

Invoke = Callable[..., Result]
_COMMANDS = ("optimize", "profile", "verify", "inspect", "explain", "reduce", "doctor")
_GROUPS = ("cache",)


def test_the_group_lists_its_commands_and_exit_codes(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert set(korch.commands) == {*_COMMANDS, *_GROUPS}
    for word in (*_COMMANDS, *_GROUPS, "Exit codes", "70 a bug"):
        assert word in result.stdout


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").stdout == f"korch {__version__}\n"


@pytest.mark.parametrize("name", _COMMANDS)
def test_every_option_is_explained_with_its_default(invoke: Invoke, name: str) -> None:
    text = " ".join(invoke(name, "--help").stdout.split())
    options = [p for p in korch.commands[name].params if isinstance(p, click.Option)]
    assert options
    for option in options:
        assert option.help, option.name
        if option.is_flag or option.multiple or option.required:
            continue
        if option.show_default is not True and option.show_default is not None:
            assert f"[default: ({option.show_default})" in text
        elif option.default is not None and not callable(option.default) and "UNSET" not in repr(option.default):
            assert f"[default: {option.default}" in text


@pytest.mark.parametrize("arguments", [["optimise"], ["optimize", "--dims", "n=1"], ["verify", "a.onnx"], ["profile"]])
def test_what_click_does_not_know_is_an_error_of_usage(invoke: Invoke, arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error:" in result.stderr


def test_a_misspelt_option_is_corrected(invoke: Invoke) -> None:
    assert "--shape" in invoke("optimize", "--shap", "x=1").stderr
