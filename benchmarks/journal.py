"""What a run has measured so far, so that one that was interrupted goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Journal:
    """Entries of one run by part and name, a line of JSON each, in a file that lasts until the run is complete.

    Args:
        path: of the file; its folder is made.
        key: what the entries hold for: those of a run with another key are forgotten.
    """

    def __init__(self, path: Path, key: Mapping[str, Any]) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = _lines(path)
        if lines[:1] != [key]:
            lines = [key]
        self._entries: dict[tuple[str, str], Entry] = {
            (line["part"], line["name"]): line["entry"] for line in lines[1:]
        }
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    def once(self, part: str, name: str, measure: Callable[[], Entry], keep: Callable[[Entry], bool]) -> Entry:
        """Return the entry of that name; measure it if it is not there, and write it down if it is worth keeping."""
        if (part, name) not in self._entries:
            entry = measure()
            if not keep(entry):
                return entry
            self._entries[part, name] = entry
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"part": part, "name": name, "entry": entry}) + "\n")
        return self._entries[part, name]

    def close(self) -> None:
        """Forget everything: the next run measures anew."""
        self._path.unlink(missing_ok=True)


def _lines(path: Path) -> list[Any]:
    """Return the lines that were written whole."""
    if not path.is_file():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found
