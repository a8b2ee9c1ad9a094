"""Sizes as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?) ?([KMGT]?)(?:i?B)?", re.IGNORECASE)
_STEP = 1024
_UNITS = ("", "K", "M", "G", "T")


def parse_size(text: str) -> int | None:
    """Return bytes for "300MiB", "1.5G" or "4096", units in steps of 1024; None for what is no size."""
    matched = _SIZE.fullmatch(text.strip())
    if matched is None:
        return None
    return int(float(matched[1]) * _STEP ** _UNITS.index(matched[2].upper()))
