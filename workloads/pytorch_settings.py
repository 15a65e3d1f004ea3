# SPDX-License-Identifier: Apache-2.0
"""The settings of PyTorch's allocator: in a memory snapshot, as text, as options of `caching`.

Their rules are in allocators/native/pytorch, and those that depend on the version of PyTorch in
versions.hpp alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from allocbench.workloads._native import WITHOUT_POOLS as WITHOUT_POOLS
from allocbench.workloads._native import WITHOUT_SETTINGS, PytorchSettings
from allocbench.workloads._native import PytorchRules as PytorchRules
from allocbench.workloads._native import split_conf as split_conf
from allocbench.workloads.vocabulary import TraceError

_MIB = 1 << 20
VARIABLES = tuple(dict.fromkeys(rules.variable for rules in PytorchRules.sets()))
"""Where PyTorch reads its settings, the older variable first."""
_CONFS = (*reversed(VARIABLES), "PYTORCH_HIP_ALLOC_CONF")
_IN_CONF_ALONE = (
    "max_non_split_rounding_mb",
    "large_segment_size_mb",
    "per_process_memory_fraction",
    "expandable_segments_reserve",
)
_FLAGS_IN_CONF_ALONE = ("throw_on_cudamalloc_oom",)
_FLAGS = {"true": "True", "false": "False"}
_NOT_IN_CONF = ("version", "conf")


@dataclass(frozen=True)
class RecordedSettings:
    """The settings that held when a snapshot was taken.

    conf: the text that set them, "" if unknown. options: those of `caching` that are the same.
    """

    conf: str
    options: dict[str, str]


def read_settings(data: Any, conf: str = "") -> RecordedSettings:
    """The settings in a snapshot; if it has none, those of a text in PyTorch's syntax.

    Raises TraceError if the text cannot be read.
    """
    settings = data.get("allocator_settings") if isinstance(data, dict) else None
    if not isinstance(settings, dict):
        try:
            read = PytorchSettings({"version": WITHOUT_SETTINGS, "conf": conf})
        except ValueError as error:
            raise TraceError(f"its allocator settings cannot be read: {error}") from None
        return _recorded(
            conf,
            read.max_split,
            read.collection_threshold,
            read.expandable,
            dict(enumerate(read.divisions)),
        )
    confs = (settings.get(name) for name in _CONFS)
    split, threshold = settings.get("max_split_size"), settings.get("garbage_collection_threshold")
    steps = settings.get("roundup_power2_divisions")
    return _recorded(
        next((conf for conf in confs if type(conf) is str and conf), ""),
        split if type(split) is int and 0 < split < 1 << 62 else None,
        float(threshold) if isinstance(threshold, int | float) else 0.0,
        settings.get("expandable_segments") is True,
        _divisions(steps) if isinstance(steps, dict) else {},
    )


def _recorded(
    conf: str,
    max_split: int | None,
    threshold: float,
    expandable: bool,
    divisions: Mapping[int, int],
) -> RecordedSettings:
    """max_split: bytes. divisions: by the power of two of a size in MiB (0: none)."""
    named = dict(split_conf(conf))
    options = {name: named[name] for name in _IN_CONF_ALONE if named.get(name)}
    for name in _FLAGS_IN_CONF_ALONE:
        if named.get(name, "").lower() == "true":
            options[name] = "true"
    if max_split is not None:
        options["max_split_size_mb"] = str(max_split // _MIB)
    if threshold > 0:
        options["garbage_collection_threshold"] = repr(threshold)
    if expandable:
        options["expandable_segments"] = "true"
    if any(steps > 1 for steps in divisions.values()):
        parts = [f"{1 << power}:{steps}" for power, steps in sorted(divisions.items())]
        options["roundup_power2_divisions"] = f"[{','.join(parts)}]"
    return RecordedSettings(conf, options)


def _divisions(stored: Mapping[Any, Any]) -> dict[int, int]:
    """By the power of two in MiB at which each interval begins."""
    return {
        int(begin).bit_length() - 1: steps
        for begin, steps in stored.items()
        if str(begin).isdecimal() and int(begin) > 0 and type(steps) is int and 0 <= steps < 1 << 20
    }


def stored(options: Mapping[str, str]) -> dict[str, Any]:
    """The settings of options of `caching` as a snapshot holds them, by PyTorch's names."""
    settings = PytorchSettings(options)
    return {
        _CONFS[0]: conf_of(options),
        "max_split_size": -1 if settings.max_split is None else settings.max_split,
        "garbage_collection_threshold": settings.collection_threshold,
        "expandable_segments": settings.expandable,
        "roundup_power2_divisions": {
            str(1 << power): steps for power, steps in enumerate(settings.divisions)
        },
    }


def conf_of(options: Mapping[str, str]) -> str:
    """The value of PyTorch's variable for options of `caching`; empty for its defaults."""
    items = [
        f"{name}:{_FLAGS.get(value, value)}"
        for name, value in options.items()
        if name not in _NOT_IN_CONF
    ]
    return ",".join(filter(None, [options.get("conf", ""), *items]))
