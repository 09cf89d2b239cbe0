"""Formats values for the report: escaped texts, numbers, durations."""

import html
import sys
from typing import Any


def text(value: object) -> str:
    """Any value as HTML text that is safe in an element and in a quoted attribute."""
    return html.escape(str(value))


def is_number(value: object) -> bool:
    """Whether the value is an int or a float, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_finite(value: object) -> bool:
    """Whether the value is a finite number that a float can represent."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def number(value: Any) -> str:
    """A number with four decimals, fewer if it is large; with three significant digits if it is very small."""
    if not is_finite(value):
        return "NaN" if value != value else str(value)
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 100:
        return f"{value:.1f}"
    return f"{value:.4f}" if abs(value) >= 0.01 else f"{value:.3g}"


def short(value: float) -> str:
    """A number with three digits and a unit: 10.8 M."""
    value = float(f"{value:.3g}")
    for size, unit in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def duration(seconds: float) -> str:
    """A duration in its two largest units: 12 min 05 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
