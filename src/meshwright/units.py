"""Parsing and printing of quantities: the only place where GB, GiB, ms and TFLOP/s exist.

Inside, everything is in SI base units. Printing keeps three significant figures and always says the unit.
The trap this module guards: `Gb` is gigabit and `GB` gigabyte, a factor of eight. Rates written `gb/s` are refused
because they could be either; `Gbps` is always bits; a memory size in `Gb` is refused.

>>> parse_count("15T"), parse_bandwidth("400 Gb/s"), parse_bytes("80GiB") == 80 * 2**30, parse_duration("1d12h")
(15000000000000.0, 50000000000.0, True, 129600.0)
>>> show(80 * 2**30, "B")
'80.0 GiB'
>>> show(18.4, "s"), show(0.00071, "s"), show(450e9, "B/s")
('18.4 s', '710 µs', '450 GB/s')
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from meshwright.errors import InputError
from meshwright.messages import N_, Text

Kind = Literal["count", "bytes", "days", "dollars", "fraction", "seconds", "bandwidth", "flops", "watts"]

_SI = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12, "p": 1e15, "q": 1e15}
_PREFIX = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}
_PREFIX |= {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0,
    "m": 60.0, "min": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0, "hours": 3600.0,
    "d": 86400.0, "day": 86400.0, "days": 86400.0, "w": 604800.0, "week": 604800.0, "weeks": 604800.0,
}  # fmt: skip

_WHAT: dict[Kind, str] = {
    "count": N_("a count"),
    "bytes": N_("an amount of memory"),
    "days": N_("a duration"),
    "seconds": N_("a duration"),
    "dollars": N_("an amount of money"),
    "fraction": N_("a share"),
    "bandwidth": N_("a bandwidth"),
    "flops": N_("a compute rate"),
    "watts": N_("a power"),
}
_EXAMPLES: dict[Kind, str] = {
    "count": "4096, 8k, 70B, 15T, 1.5e12",
    "bytes": "80GiB, 80GB, 40e9",
    "days": "21d, 3w, 36h, 1d12h",
    "seconds": "0.5, 20ms, 36h, 1d12h",
    "dollars": "200k, $1.5M",
    "fraction": "0.9, 90%",
    "bandwidth": "50GB/s, 400Gbps, 400Gb/s",
    "flops": "989TFLOP/s, 2.25PFLOP/s",
    "watts": "700W, 1.2kW",
}
# Beyond these a value is a slip of the keyboard: an exabyte in one place, a century, a quintillion tokens.
_LIMIT: dict[Kind, float] = {
    "count": 1e18,
    "bytes": 1e18,
    "days": 36525.0,
    "seconds": 36525.0 * 86400,
    "dollars": 1e13,
    "fraction": 1e3,
    "bandwidth": 1e16,
    "flops": 1e21,
    "watts": 1e10,
}
# Commas and underscores stand before three digits: `4,8` is two numbers, not forty-eight.
_NUMBER = re.compile(
    r"\s*\+?((?:(?:\d{1,3}(?:[_,]\d{3})+|\d+)\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*", re.IGNORECASE | re.ASCII
)
_DATA_UNIT = re.compile(r"(ki|mi|gi|ti|pi|k|m|g|t|p|e)?(bits?|bytes?|b)(/s|ps)?", re.IGNORECASE)


def parse_quantity(text: str | float, kind: Kind, *, where: str = "", zero: bool = True) -> float:
    """The value of `text` in base units of `kind`; raises `InputError` with examples of what is understood.

    Numbers that are not text are taken to be in base units already. Negative, infinite and absurd values are refused.
    """
    try:
        number = isinstance(text, (int, float)) and not isinstance(text, bool)
        value = float(text) if number else _parse(str(text), kind, where)
    except OverflowError:  # an integer of more than 300 digits
        value = math.inf
    if not math.isfinite(value):
        raise _refuse(text, kind, where)
    if value < 0 or (value == 0 and not zero):
        raise InputError(
            Text(N_("'{text}' must be above zero"), text=_short(text)),
            where=where,
            fix=Text(N_("write it like {examples}"), examples=_EXAMPLES[kind]),
        )
    if value > _LIMIT[kind]:
        raise InputError(
            Text(N_("'{text}' is absurdly large for {what}"), text=_short(text), what=Text(_WHAT[kind])),
            where=where,
            fix=Text(N_("check the unit; write it like {examples}"), examples=_EXAMPLES[kind]),
        )
    return value


def parse_bytes(text: str | float, *, where: str = "") -> float:
    """Bytes from `80GiB`, `80 GB`, `40e9`. `Gb` (gigabit) is refused."""
    return parse_quantity(text, "bytes", where=where, zero=False)


def parse_bandwidth(text: str | float, *, where: str = "") -> float:
    """Bytes per second, one direction, from `400Gbps`, `400 Gb/s` (bits) or `50 GB/s` (bytes); `gb/s` is refused."""
    return parse_quantity(text, "bandwidth", where=where, zero=False)


def parse_count(text: str | float, *, where: str = "") -> float:
    """Tokens, parameters or items from `15T`, `70B`, `8k`, `1.5e12`, `1_000_000`."""
    return parse_quantity(text, "count", where=where, zero=False)


def parse_duration(text: str | float, *, where: str = "") -> float:
    """Seconds from `21d`, `36h`, `90 min`, `1d12h`, `20ms`; a bare number is refused unless it is not text."""
    if isinstance(text, str) and _NUMBER.fullmatch(text):
        raise _needs_unit(text, "days", where)
    return parse_quantity(text, "seconds", where=where, zero=False)


def parse_money(text: str | float, *, where: str = "") -> float:
    """US dollars from `200k`, `$1.5M`, `200,000`."""
    return parse_quantity(text, "dollars", where=where, zero=False)


def _short(text: object) -> str:
    return str(text)[:60]


def _needs_unit(text: object, kind: Kind, where: str) -> InputError:
    return InputError(
        Text(N_("'{text}' needs a unit"), text=_short(text)),
        where=where,
        fix=Text(N_("write it like {examples}"), examples=_EXAMPLES[kind]),
    )


def _refuse(text: object, kind: Kind, where: str) -> InputError:
    return InputError(
        Text(N_("'{text}' is not {what}"), text=_short(text), what=Text(_WHAT[kind])),
        where=where,
        fix=Text(N_("write it like {examples}"), examples=_EXAMPLES[kind]),
    )


def _parse(text: str, kind: Kind, where: str) -> float:
    bare = text.strip()
    if kind == "dollars":
        bare = bare.removeprefix("$").removeprefix("US$").removesuffix("$").removesuffix("USD")
    negative = bare.startswith("-")
    if negative:
        bare = bare[1:]
    if kind in ("seconds", "days"):
        value = _parse_duration(bare, kind)
    else:
        match = _NUMBER.match(bare)
        if kind in ("bytes", "bandwidth") and match and match.end() == len(bare) and 0 < _number(match[1]) < 1e6:
            raise _needs_unit(text, kind, where)
        factor = _factor(bare[match.end() :].strip(), kind, text, where) if match else None
        value = None if match is None or factor is None else _number(match[1]) * factor
    if value is None:
        raise _refuse(text, kind, where)
    return -value if negative else value


def _number(digits: str) -> float:
    return float(digits.replace(",", "").replace("_", ""))


def _parse_duration(text: str, kind: Kind) -> float | None:
    """A number of base units, or one or more `number unit` pairs."""
    if whole := _NUMBER.fullmatch(text):
        return _number(whole[1])
    total, at = 0.0, 0
    while at < len(text):
        number = _NUMBER.match(text, at)
        unit = re.compile(r"[a-zµμ]+\s*", re.IGNORECASE).match(text, number.end()) if number else None
        factor = _SECONDS.get(unit[0].strip().lower()) if unit else None
        if number is None or unit is None or factor is None:
            return None
        total, at = total + _number(number[1]) * factor, unit.end()
    return None if at == 0 else total / 86400 if kind == "days" else total


def _factor(unit: str, kind: Kind, text: str, where: str) -> float | None:
    match kind:
        case "bytes" | "bandwidth":
            return _data_factor(unit, kind, text, where)
        case "count" | "dollars":
            return _SI.get(unit.lower())
        case "fraction":
            return {"": 1.0, "%": 0.01}.get(unit)
        case "flops":
            return 1.0 if unit == "" else _prefixed(unit, r"flops?(?:/s)?")
        case "watts":
            return 1.0 if unit == "" else _prefixed(unit, "w")
    return None


def _prefixed(unit: str, stem: str) -> float | None:
    found = re.fullmatch(rf"([kmgtpe]?){stem}", unit, re.IGNORECASE)
    return None if found is None else _PREFIX[found[1].lower()]


def _data_factor(unit: str, kind: Kind, text: str, where: str) -> float | None:
    """Bytes in one `unit`; the letter case of `b` tells bits from bytes, except in `Gbps` (bits) and `80gb` (bytes)."""
    if unit == "":
        return 1.0
    found = _DATA_UNIT.fullmatch(unit)
    if found is None or bool(found[3]) != (kind == "bandwidth"):
        return None
    prefix, stem, per = found[1] or "", found[2], (found[3] or "").lower()
    bits = stem.lower().startswith("bit") or stem == "b"
    lower = stem == "b" and not prefix[:1].isupper()
    if kind == "bytes" and bits:
        if not lower:
            raise _bits_or_bytes(text, where, prefix)
        bits = False
    if kind == "bandwidth" and lower and per == "/s":
        raise _bits_or_bytes(text, where, prefix, rate="/s")
    return _PREFIX[prefix.lower()] / (8 if bits else 1)


def _bits_or_bytes(text: str, where: str, prefix: str, rate: str = "") -> InputError:
    big = prefix[:1].upper() + prefix[1:]
    return InputError(
        Text(N_("'{text}' could mean bits or bytes, a factor of 8"), text=_short(text)),
        where=where,
        fix=Text(N_("write {bytes} for bytes or {bits} for bits"), bytes=f"{big}B{rate}", bits=f"{big}bit{rate}"),
    )


# --- units of catalogue files: exact spelling, one dimension each -----------------------------------------------

UNITS: Mapping[str, tuple[str, float]] = {
    "1": ("one", 1.0), "%": ("one", 0.01),
    "B": ("bytes", 1.0), "MB": ("bytes", 1e6), "GB": ("bytes", 1e9), "TB": ("bytes", 1e12),
    "MiB": ("bytes", 2.0**20), "GiB": ("bytes", 2.0**30), "TiB": ("bytes", 2.0**40),
    "B/s": ("bandwidth", 1.0), "GB/s": ("bandwidth", 1e9), "TB/s": ("bandwidth", 1e12),
    "GiB/s": ("bandwidth", 2.0**30), "Gb/s": ("bandwidth", 125e6), "Tb/s": ("bandwidth", 125e9),
    "FLOP/s": ("flops", 1.0), "TFLOP/s": ("flops", 1e12), "PFLOP/s": ("flops", 1e15),
    "s": ("seconds", 1.0), "ms": ("seconds", 1e-3), "us": ("seconds", 1e-6), "ns": ("seconds", 1e-9),
    "W": ("watts", 1.0), "kW": ("watts", 1e3), "USD/h": ("price", 1.0),
}  # fmt: skip


# --- printing ---------------------------------------------------------------------------------------------------


def figures(value: float, digits: int = 3) -> str:
    """`value` with `digits` significant figures, never in exponent form between 1e-4 and 1e15.

    >>> figures(1234.5), figures(12.345), figures(0.12345), figures(99.96)
    ('1,234', '12.3', '0.123', '100')
    """
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    magnitude = math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}"))))
    if magnitude < -4 or magnitude >= 15:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def _scaled(value: float, steps: tuple[tuple[float, str], ...]) -> str:
    for factor, unit in steps:
        if abs(value) >= factor * 0.9995:
            return f"{figures(value / factor)} {unit}"
    factor, unit = steps[-1]
    return f"{figures(value / factor)} {unit}"


_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
_RATE = ((1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s"))
_FLOPS = ((1e15, "PFLOP/s"), (1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s"), (1.0, "FLOP/s"))
_FLOP = (
    (1e24, "YFLOP"), (1e21, "ZFLOP"), (1e18, "EFLOP"), (1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"), (1.0, "FLOP"),
)  # fmt: skip
_TIME = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_COUNT = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_MONEY = ((1e9, "B"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def show_bytes(value: float) -> str:
    """Bytes in binary units."""
    return "0 B" if value == 0 else _scaled(value, _BYTES)


def show_gib(value: float) -> str:
    """Bytes always in GiB with one decimal, so that a column can be compared by eye."""
    return f"{value / 2**30:,.1f} GiB" if abs(value) >= 0.05 * 2**30 or value == 0 else _scaled(value, _BYTES)


def show_seconds(value: float) -> str:
    """Seconds, from ns to s; an hour and more in h."""
    if value == 0:
        return "0 s"
    if abs(value) >= 3600:
        return f"{figures(value / 3600)} h"
    return _scaled(value, _TIME)


def show_count(value: float) -> str:
    """A large count with a suffix: 15T, 70.6B, 512."""
    if float(value).is_integer() and abs(value) < 1e5:
        return f"{int(value):,}"
    return _scaled(value, _COUNT).replace(" ", "")


def show_money(value: float) -> str:
    """US dollars, in full below ten thousand, where a price per billion tokens or a small run lies."""
    if abs(value) < 1e4:
        return f"${figures(value)}"
    return "$" + _scaled(value, _MONEY).replace(" ", "")


def show_percent(value: float, digits: int = 1) -> str:
    """A share as a percentage."""
    return f"{100 * value:.{digits}f}%"


def plain_days(days: float) -> str:
    """A number of days alone: a decimal, two below ten so that a near miss shows, three figures below a tenth."""
    return f"{days:,.1f}" if days >= 10 else f"{days:,.2f}" if days >= 0.1 else figures(days)


def show_days(days: float) -> str:
    """Days, or hours below two days, or minutes below two hours, or years above two."""
    if days < 2 / 24:
        return f"{figures(days * 1440)} min"
    if days < 2:
        return f"{figures(days * 24)} h"
    if days > 730:
        return f"{figures(days / 365.25)} a"
    return f"{figures(days)} d"


def show_bandwidth(value: float) -> str:
    """Bytes per second in decimal units: 50 GB/s."""
    return "0 B/s" if value == 0 else _scaled(value, _RATE)


def show_flops(value: float) -> str:
    """A compute rate: 989 TFLOP/s."""
    return "0 FLOP/s" if value == 0 else _scaled(value, _FLOPS)


format_bytes = show_bytes
format_seconds = show_seconds
format_flops = show_flops
format_bandwidth = show_bandwidth
format_count = show_count
format_money = show_money
format_percent = show_percent


def show(value: object, unit: str) -> str:
    """`value` of base unit `unit` for a reader: three figures and a prefix that fits."""
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return _show_number(value, unit)


@lru_cache(maxsize=4096)  # rules and tables show the same rates and capacities over and over
def _show_number(value: float, unit: str) -> str:
    match unit:
        case "B" | "bytes":
            return show_bytes(value)
        case "s" | "seconds":
            return show_seconds(value)
        case "B/s" | "bytes/s":
            return show_bandwidth(value)
        case "FLOP/s":
            return show_flops(value)
        case "FLOP":
            return _scaled(value, _FLOP)
        case "$":
            return show_money(value)
        case "days" | "d":
            return show_days(value)
        case "1" | "share" | "fraction":
            return show_percent(value)
        case "" | "count":
            return show_count(value) if float(value).is_integer() else figures(value)
    text = show_count(value) if abs(value) >= 1e5 or float(value).is_integer() else figures(value)
    return f"{text} {unit}"
