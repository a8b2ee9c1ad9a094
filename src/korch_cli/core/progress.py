"""How stages tell a person what they are doing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives what happens; `report` shows it on stderr, tests ignore or record it."""

    def stage(self, text: str) -> None:
        """A new stage begins."""

    def step(self, done: int, total: int, text: str = "") -> None:
        """`done` of `total` parts of the current stage are finished; `text` names the latest."""


class Silent:
    """Progress that nobody sees."""

    def stage(self, text: str) -> None:
        """Ignore it."""

    def step(self, done: int, total: int, text: str = "") -> None:
        """Ignore it."""
