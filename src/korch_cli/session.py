"""Sessions of optimised models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from korch_cli.core.errors import MissingError

if TYPE_CHECKING:
    import onnxruntime as ort


def load_session(
    path: str | os.PathLike[str],
    *,
    sess_options: ort.SessionOptions | None = None,
    providers: Sequence[Any] | None = None,
) -> ort.InferenceSession:
    """Return an ONNX Runtime session of a model that korch wrote; of any other model too.

    The kernel library beside the model (`x.korch.so` for `x.onnx`) is registered with the session's options, one for
    GPUs only if `providers` have one. Without a library the model runs on the functions that it carries: the same
    results, at the speed of ONNX Runtime's own operators.

    Args:
        path: the ONNX file.
        sess_options: as for `onnxruntime.InferenceSession`; the library is registered in this very object, which
            therefore serves one session.
        providers: as for `onnxruntime.InferenceSession`; the CPU by default.

    Raises:
        MissingError: ONNX Runtime is missing or too old, or it refuses the library.
    """
    from korch_cli.verify import CPU_PROVIDER, fitting_library, require_onnxruntime

    require_onnxruntime()
    import onnxruntime as ort

    model = Path(path)
    options = ort.SessionOptions() if sess_options is None else sess_options
    wanted = list(providers or [CPU_PROVIDER])
    names = [provider if isinstance(provider, str) else provider[0] for provider in wanted]
    library = fitting_library(model, names)
    if library is not None:
        _register(options, library)
    return ort.InferenceSession(str(model), options, providers=wanted)


def _register(options: ort.SessionOptions, library: Path) -> None:
    try:
        options.register_custom_ops_library(str(library.resolve()))
    except Exception as error:  # the classes of ONNX Runtime's exceptions differ between its versions
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MissingError(
            f"ONNX Runtime refuses the model's kernel library: {reason}",
            where=str(library),
            hint="optimize the model again on this machine, or remove the library to run without it",
        ) from error
