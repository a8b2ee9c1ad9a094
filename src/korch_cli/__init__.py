"""korch: makes ONNX models run faster in ONNX Runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from korch_cli.session import load_session

__all__ = ["load_session"]


def __getattr__(name: str) -> Any:
    """Import `load_session` when it is first asked for: the command line starts without ONNX Runtime."""
    if name in __all__:
        from korch_cli import session

        return getattr(session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
