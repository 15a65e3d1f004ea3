# SPDX-License-Identifier: Apache-2.0
"""Numbers for people: binary bytes, small seconds, ratios, percent, counts."""

NOT_AVAILABLE = "n/a"
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SECOND_UNITS = ((1e-9, "ns"), (1e-6, "us"), (1e-3, "ms"), (1.0, "s"))


def byte_unit(largest: float) -> tuple[float, str]:
    """Divisor and name of the largest binary unit in which `largest` bytes read below 1000."""
    power = 0
    while power < len(_BYTE_UNITS) - 1 and float(f"{largest / 1024**power:.3g}") >= 1000:
        power += 1
    return 1024**power, _BYTE_UNITS[power]


def second_unit(largest: float) -> tuple[float, str]:
    """Divisor and name of the smallest unit, from ns to s, in which `largest` reads below 1000."""
    fitting = (pair for pair in _SECOND_UNITS if float(f"{largest / pair[0]:.3g}") < 1000)
    return next(fitting, _SECOND_UNITS[-1])


def size(number: float) -> str:
    """Bytes with three significant digits: 512 B, 9.12 GiB."""
    divisor, unit = byte_unit(number)
    return f"{int(number)} B" if unit == "B" else f"{_three(number / divisor)} {unit}"


def seconds(number: float) -> str:
    """Seconds with three significant digits: 31.2 ns, 4.50 ms."""
    divisor, unit = second_unit(abs(number))
    return f"{_three(number / divisor)} {unit}" if number else f"0 {unit}"


def seconds_range(low: float, high: float) -> str:
    """A range of seconds with two significant digits: 1.7-15 ms; `seconds` if it is one number."""
    if low == high:
        return seconds(high)
    divisor, unit = second_unit(high)
    ends = [_two(end / divisor) for end in (low, high)]
    return f"{'-'.join(dict.fromkeys(ends))} {unit}"


def count(number: int, noun: str) -> str:
    """A count with its noun: 1 alloc, 2,000 allocs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def times(number: float) -> str:
    """A ratio: 1.03x, 12.3x, 1,230x."""
    return f"{number:.2f}x" if abs(number) < 9.995 else f"{_three(number)}x"


def percent(number: float) -> str:
    """A fraction in percent; a small one is not rounded to zero."""
    if 0 < number < 0.0005:
        return "<0.1%"
    return f"{number * 100:.1f}%"


MOST_NAMES = 3
"""The names that a list in words shows at most, unless told otherwise."""


def names(items: tuple[str, ...] | list[str], most: int = MOST_NAMES) -> str:
    """A list in words, cut after `most`: a, b and 4 more."""
    if len(items) > most:
        return f"{', '.join(items[: most - 1])} and {len(items) - most + 1} more"
    return " and ".join(filter(None, (", ".join(items[:-1]), items[-1]))) if items else "none"


def short(names: list[str], width: int) -> dict[str, str]:
    """Each name, shortened in the middle to at most `width` characters but still distinct."""
    cut: dict[str, str] = {}
    for name in dict.fromkeys(names):
        label = _cut(name, width)
        n = 2
        while label in cut.values():
            label = f"{_cut(name, width - len(str(n)) - 3)} ({n})"
            n += 1
        cut[name] = label
    return cut


def _cut(name: str, width: int) -> str:
    if len(name) <= width:
        return name
    tail = (width - 1) // 2
    return f"{name[: width - 1 - tail]}…{name[len(name) - tail :]}"


def _three(number: float) -> str:
    """Three significant digits, no exponent."""
    rounded = float(f"{number:.3g}")
    if abs(rounded) >= 100:
        return f"{rounded:,.0f}"
    return f"{rounded:.1f}" if abs(rounded) >= 10 else f"{rounded:.2f}"


def _two(number: float) -> str:
    """Two significant digits, no exponent."""
    rounded = float(f"{number:.2g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 10 else f"{rounded:f}".rstrip("0").rstrip(".")
