"""What a run has measured so far, so that one that is cut short goes on where it stopped, here or elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Entry = dict[str, Any]
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Journal:
    """Entries of one run by part and name, a line of JSON each, in a file that lasts until the run is complete.

    Every entry says in "made" when it was measured, from which commit, on which model of the processor, in which call
    of the program, and how many minutes it took.

    Args:
        path: of the file; its folder is made.
        key: what the entries hold for: those of a run with another key are forgotten.
        commit: of the code that runs.
        processor: its model, more exactly than the key has it.
        agenda: what the run is to measure, names by part; says how far it is.
        minutes: after so many nothing is measured any more; None for no limit.
    """

    def __init__(
        self,
        path: Path,
        key: Mapping[str, Any],
        *,
        commit: str = "unknown",
        processor: str = "unknown",
        agenda: Mapping[str, Sequence[str]] | None = None,
        minutes: float | None = None,
    ) -> None:
        self._path, self._call = path, time.strftime(_TIME, time.gmtime())
        self._origin = {"commit": commit, "processor": processor}
        self._started, self._minutes = time.monotonic(), minutes
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = _lines(path)
        if lines[:1] != [_plain(key)]:
            lines = [key]
        self._entries: dict[tuple[str, str], Entry] = {
            (line["part"], line["name"]): line["entry"] for line in lines[1:]
        }
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        self._agenda = [(part, name) for part, names in (agenda or {}).items() for name in names]
        self._failed: set[tuple[str, str]] = set()
        self.left_out: list[str] = []
        """Names for which there was no time."""

    def once(self, part: str, name: str, measure: Callable[[], Entry], keep: Callable[[Entry], bool]) -> Entry | None:
        """Return the entry of that name; measure it if it is not there, and write it down if it is worth keeping.

        None if it is not there and the time is up.
        """
        if (part, name) in self._entries:
            return self._entries[part, name]
        spent = (time.monotonic() - self._started) / 60
        if self._minutes is not None and spent >= self._minutes:
            self.left_out.append(name)
            return None
        print(f"{name} ({self._progress()})", file=sys.stderr, flush=True)
        at = time.strftime(_TIME, time.gmtime())
        entry = measure()
        took = (time.monotonic() - self._started) / 60 - spent
        made = {"call": self._call, "at": at, **self._origin, "minutes": round(took, 2)}
        entry = entry | {"made": made}
        if not keep(entry):
            self._failed.add((part, name))
            return entry
        self._entries[part, name] = entry
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part, "name": name, "entry": entry}) + "\n")
        return entry

    def close(self) -> None:
        """Forget everything: the next run measures anew."""
        self._path.unlink(missing_ok=True)

    def _progress(self) -> str:
        """Return how much is done and, where entries of the same parts tell, how long the rest takes."""
        seen = self._entries.keys() | self._failed
        rest = [part for part, name in self._agenda if (part, name) not in seen]
        done = f"{len(self._agenda) - len(rest)} of {len(self._agenda)} done"
        took: dict[str, list[float]] = {}
        for (part, _), entry in self._entries.items():
            took.setdefault(part, []).append(entry["made"]["minutes"])
        known = [sum(took[part]) / len(took[part]) for part in rest if part in took]
        if not known:
            return done
        return f"{done}, {'' if len(known) == len(rest) else 'more than '}{sum(known):.0f} minutes to go"


def names_in(path: Path, part: str) -> set[str]:
    """Return what a journal has entries of."""
    return {line["name"] for line in _lines(path)[1:] if line["part"] == part}


def differences(path: Path, key: Mapping[str, Any]) -> list[str]:
    """Return what is different in the run that a journal is of; nothing if there is no journal."""
    lines = _lines(path)
    return list(_differences(lines[0], _plain(key))) if lines else []


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name in sorted(old.keys() | new.keys()):
        one, other = old.get(name), new.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _differences(one, other, f"{prefix}{name} ")
        elif one != other:
            yield f"{prefix}{name} ({one}, now {other})"


def _plain(key: Mapping[str, Any]) -> Any:
    """Return the key as it is read again."""
    return json.loads(json.dumps(key))


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
