"""Every error that a user can cause, and the exit code that each one ends with."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """What `korch` returns to the shell; docs/cli.md is the reference."""

    OK = 0
    ANSWER_IS_NO = 1
    USAGE = 2
    BAD_MODEL = 3
    ENVIRONMENT = 4
    BUDGET_EXHAUSTED = 5
    BUG = 70
    INTERRUPTED = 130
    TERMINATED = 143


class KorchError(Exception):
    """A failure that is explained rather than traced.

    Args:
        message: what is wrong, one sentence.
        where: the node, tensor or file it is about, if there is one.
        hint: what to do about it, if something can be done.
    """

    exit_code: ClassVar[ExitCode] = ExitCode.BUG

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        advice = f"\n  {self.hint}" if self.hint else ""
        return f"{self.message}{place}{advice}"


class UsageError(KorchError):
    """A flag or a configuration value that makes no sense."""

    exit_code = ExitCode.USAGE


class ModelError(KorchError):
    """The model cannot be read, or it is not valid ONNX."""

    exit_code = ExitCode.BAD_MODEL


class MissingError(KorchError):
    """Something outside korch is missing or too old: a compiler, ONNX Runtime, a writable folder."""

    exit_code = ExitCode.ENVIRONMENT


class BudgetError(KorchError):
    """The time given ran out before anything valid could be written."""

    exit_code = ExitCode.BUDGET_EXHAUSTED


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not an error
    """A rule, a fission function or the code generator declines; the sentence goes to the report."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
