# SPDX-License-Identifier: Apache-2.0
"""The settings of PyTorch's allocator: in a memory snapshot, as text, as options of `caching`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from allocbench.workloads.vocabulary import TraceError

MIB = 1 << 20
BEFORE_POOLS = "2.11"
"""The version of PyTorch whose rules stand for all versions whose events do not name pools."""
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
_ROUNDING = 512
_INTERVALS = 16  # powers of two of MiB that roundup_power2_divisions distinguishes
_IN_CONF_ALONE = (
    "max_non_split_rounding_mb",
    "large_segment_size_mb",
    "per_process_memory_fraction",
)
_FLAGS_IN_CONF_ALONE = ("throw_on_cudamalloc_oom",)
_CONFS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_FLAGS = {"true": "True", "false": "False"}
_NOT_IN_CONF = ("version", "conf")


@dataclass(frozen=True)
class Settings:
    """The settings that held when a snapshot was taken.

    conf: the text that set them, "" if unknown. max_split: bytes, or None for no limit. collects:
    whether garbage_collection_threshold was set. expandable: whether new segments were
    expandable. divisions:
    steps between powers of two, by the power of two of a size in MiB (0: none).
    """

    conf: str = ""
    max_split: int | None = None
    threshold: float = 0.0
    expandable: bool = False
    divisions: Mapping[int, int] = field(default_factory=dict)

    @property
    def large_segment(self) -> int:
        """Bytes of a segment for requests below 10 MiB, or of an expandable page for all."""
        megabytes = self.options().get("large_segment_size_mb", "")
        return int(megabytes) * MIB if megabytes.isdecimal() else LARGE_SEGMENT

    @property
    def collects(self) -> bool:
        """Whether the allocator may free segments without a trim."""
        return self.threshold > 0

    def rounded(self, requested: int) -> int:
        """Bytes allocated to a request, not counting the remainder of a block that is not split."""
        if requested < _ROUNDING:
            return _ROUNDING
        power = requested.bit_length() - 1
        steps = self.divisions.get(min(max(power - 20, 0), _INTERVALS - 1), 0)
        if steps <= 1 or requested <= _ROUNDING * steps:
            return -(-requested // _ROUNDING) * _ROUNDING
        step = (1 << power) // steps
        return -(-requested // step) * step

    def options(self) -> dict[str, str]:
        """The options of `caching` for these settings."""
        by_name = {
            name: match[1]
            for name in _IN_CONF_ALONE
            if (match := re.search(rf"(?:^|[\s,]){name}\s*:\s*([\d.]+)", self.conf))
        }
        for name in _FLAGS_IN_CONF_ALONE:
            if re.search(rf"(?:^|[\s,]){name}\s*:\s*true\b", self.conf, re.IGNORECASE):
                by_name[name] = "true"
        if self.max_split is not None:
            by_name["max_split_size_mb"] = str(self.max_split // MIB)
        if self.threshold > 0:
            by_name["garbage_collection_threshold"] = repr(self.threshold)
        if self.expandable:
            by_name["expandable_segments"] = "true"
        if any(steps > 1 for steps in self.divisions.values()):
            parts = [f"{1 << power}:{steps}" for power, steps in sorted(self.divisions.items())]
            by_name["roundup_power2_divisions"] = f"[{','.join(parts)}]"
        return by_name

    def stored(self) -> dict[str, Any]:
        """The settings as a snapshot holds them, by PyTorch's names."""
        return {
            _CONFS[0]: self.conf,
            "max_split_size": -1 if self.max_split is None else self.max_split,
            "garbage_collection_threshold": self.threshold,
            "expandable_segments": self.expandable,
            "roundup_power2_divisions": {
                str(1 << power): self.divisions.get(power, 0) for power in range(_INTERVALS)
            },
        }


def read_settings(data: Any, conf: str = "") -> Settings:
    """The settings in a snapshot; if it has none, those of a text in PyTorch's syntax.

    Raises TraceError if the text cannot be read.
    """
    settings = data.get("allocator_settings") if isinstance(data, dict) else None
    if not isinstance(settings, dict):
        return read_conf(conf, overlap=True)  # up to PyTorch 2.3
    confs = (settings.get(name) for name in _CONFS)
    split, threshold = settings.get("max_split_size"), settings.get("garbage_collection_threshold")
    steps = settings.get("roundup_power2_divisions")
    return Settings(
        conf=next((conf for conf in confs if type(conf) is str and conf), ""),
        max_split=split if type(split) is int and 0 < split < 1 << 62 else None,
        threshold=float(threshold) if isinstance(threshold, int | float) else 0.0,
        expandable=settings.get("expandable_segments") is True,
        divisions=_divisions(steps) if isinstance(steps, dict) else {},
    )


def conf_of(options: Mapping[str, str]) -> str:
    """The value of PyTorch's variable for options of `caching`; empty for its defaults."""
    items = [
        f"{name}:{_FLAGS.get(value, value)}"
        for name, value in options.items()
        if name not in _NOT_IN_CONF
    ]
    return ",".join(filter(None, [options.get("conf", ""), *items]))


def read_conf(conf: str, *, overlap: bool) -> Settings:
    """The settings of a text in PyTorch's syntax.

    overlap: whether ">" in a list of divisions includes the interval before it, as it does up to
    PyTorch 2.9. Raises TraceError if the text cannot be read.
    """
    by_name = dict(re.findall(r"(\w+)\s*:\s*(\[[^\]]*\]|[^,\s]+)", conf))
    split = by_name.get("max_split_size_mb")
    try:
        return Settings(
            conf=conf,
            max_split=None if split is None else int(split) * MIB,
            threshold=float(by_name.get("garbage_collection_threshold", 0)),
            expandable=by_name.get("expandable_segments", "").lower() == "true",
            divisions=_divisions_of(by_name.get("roundup_power2_divisions", "[]"), overlap),
        )
    except ValueError:
        raise TraceError(f"its allocator settings '{conf}' cannot be read") from None


def _divisions_of(text: str, overlap: bool) -> dict[int, int]:
    """By power of two, from a number for all, or a list such as [1:4,256:8,>:2].

    The first interval reaches down to 0; ">" is all above the last one, and with `overlap` also the
    last one. Raises ValueError.
    """
    if not text.startswith("["):
        return dict.fromkeys(range(_INTERVALS), int(text))
    divisions: dict[int, int] = {}
    last = 0
    for interval, steps in re.findall(r"([^,:\s\[]+)\s*:\s*([^,\s\]]+)", text):
        if interval == ">":
            divisions |= dict.fromkeys(range(last + (not overlap), _INTERVALS), int(steps))
            continue
        last = min(int(interval).bit_length() - 1, _INTERVALS - 1)
        first = range(last + 1) if not divisions else (last,)
        divisions |= dict.fromkeys(first, int(steps))
    return divisions


def _divisions(stored: Mapping[Any, Any]) -> dict[int, int]:
    """By the power of two in MiB at which each interval begins."""
    return {
        int(begin).bit_length() - 1: steps
        for begin, steps in stored.items()
        if str(begin).isdecimal() and int(begin) > 0 and type(steps) is int and 0 <= steps < 1 << 20
    }
