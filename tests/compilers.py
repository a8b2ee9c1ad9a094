"""Compilers beside the one that a test run finds by itself."""

from __future__ import annotations

import shlex
import sys

CLANG = shlex.join([sys.executable, "-m", "ziglang", "c++"])
"""Zig, which is clang that pip installs."""
