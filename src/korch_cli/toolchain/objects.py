"""Files of a folder that builds share, named after all that they depend on."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from korch_cli.core.errors import MissingError


def scratch_in(cache: Path) -> tempfile.TemporaryDirectory[str]:
    """Make the folder if need be, and return one in it for what is not whole yet; its path holds in any folder.

    Raises:
        MissingError: the folder cannot be written.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="build-", dir=cache.absolute())
    except OSError as error:
        raise MissingError(f"the cache folder cannot be written: {error.strerror}", where=str(cache)) from error


def keep(made: Path, target: Path) -> None:
    """Give a whole object its name. Raises OSError."""
    # On the disk before it has its name, or a machine that goes down could leave a part of it under that name.
    with made.open("rb") as file:
        os.fsync(file.fileno())
    made.replace(target)


def is_there(path: Path) -> bool:
    """Whether an object was made before; it is marked as used now, because those that nobody uses are removed."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return path.exists()
    return True
