"""Runs the elementary functions of kernels over every float and tells how far each one is off, and where."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from korch_cli.toolchain import find_compiler
from tests.vector_math.sweeping import BOUNDS, LIBRARY, build, complaint, sweep


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="functions; all of the header's own by default")
    parser.add_argument("--stride", type=int, default=1, help="look at every N-th bit pattern only")
    parser.add_argument("--march", default="native", help="processor to compile for")
    parser.add_argument("--jobs", type=int, default=None, help="processes that run at the same time")
    parser.add_argument("--cxx", default=None, help="the C++ compiler")
    parser.add_argument("--emulator", default="", help="what runs the program, with its arguments")
    arguments = parser.parse_args()
    known = BOUNDS | LIBRARY
    for name in arguments.names:
        if name not in known:
            parser.error(f"{name} is none of {', '.join(known)}")
    compiler = find_compiler(arguments.cxx, arguments.march)
    failures = 0
    print(f"{compiler.command[0]} -march={arguments.march}, every {arguments.stride}. bit pattern of float32")
    print(f"{'function':<16}{'worst ulp':>10}  {'bound':>6}  at")
    with tempfile.TemporaryDirectory(prefix="korch-math-") as folder:
        program = Path(folder) / "sweep"
        build(compiler.command, compiler.flags, program)
        command = [*arguments.emulator.split(), str(program)]
        for name in arguments.names or BOUNDS:
            finding = sweep(command, [name], stride=arguments.stride, jobs=arguments.jobs)[name]
            wrong = complaint(name, finding)
            failures += wrong is not None
            line = f"{name:<16}{finding.error:>10.4f}  {known[name].ulp:>6g}  {finding.at!r}"
            print(line if wrong is None else f"{line}  FAILED: {wrong}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
