"""The child process that compiles CUDA text; run as a file, it imports nothing of this package.

Its one argument is the path of a request: JSON with `library`, the path of NVRTC; `headers`, texts by name; `results`,
the path of a file to write a line of JSON to for each finished job; and `jobs`, each with the path of its `source`, its
`options`, whether the result is a `cubin` (else PTX), and the paths of the `image` and the `log` to write.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any


class CompileError(Exception):
    """NVRTC refuses a source; the message is its log."""


class Nvrtc:
    """NVRTC's C interface, loaded. Raises OSError where there is no such library."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def version(self) -> tuple[int, int]:
        """Return its version."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        return major.value, minor.value

    def capabilities(self) -> tuple[int, ...]:
        """Return what it compiles for, compute capabilities times ten, ascending."""
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        found = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(found))
        return tuple(found)

    def compile(self, source: str, headers: dict[str, str], options: list[str], *, cubin: bool) -> tuple[bytes, str]:
        """Return the image, a cubin or else PTX, and the log. Raises CompileError."""
        program = ctypes.c_void_p()
        texts, names = _strings(list(headers.values())), _strings(list(headers))
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program), source.encode(), b"kernel.cu", len(headers), texts, names
            )
        )
        try:
            failed = self._library.nvrtcCompileProgram(program, len(options), _strings(options))
            log = self._text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            if failed:
                raise CompileError(log.strip() or self._message(failed))
            return self._text(program, "CUBIN" if cubin else "PTX"), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(max(1, size.value))
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw[: size.value]

    def _check(self, result: int) -> None:
        if result:
            raise CompileError(self._message(result))

    def _message(self, result: int) -> str:
        return str(self._library.nvrtcGetErrorString(result).decode())


def _strings(texts: list[str]) -> Any:
    return (ctypes.c_char_p * len(texts))(*[text.encode() for text in texts])


def main() -> None:
    """Do the jobs of the request one after the other."""
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    nvrtc = Nvrtc(request["library"])
    with Path(request["results"]).open("w", encoding="utf-8") as results:
        for job in request["jobs"]:
            source = Path(job["source"]).read_text(encoding="utf-8")
            error = None
            try:
                image, log = nvrtc.compile(source, request["headers"], job["options"], cubin=job["cubin"])
                Path(job["image"]).write_bytes(image)
                Path(job["log"]).write_text(log, encoding="utf-8")
            except CompileError as failure:
                error = str(failure)
            results.write(json.dumps({"image": job["image"], "error": error}) + "\n")
            results.flush()


if __name__ == "__main__":
    main()
