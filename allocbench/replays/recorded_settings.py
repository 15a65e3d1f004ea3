# SPDX-License-Identifier: Apache-2.0
"""Settings of PyTorch's allocator: as a conf, and what a recording says of them and of segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from allocbench import allocators
from allocbench.allocators import SpecError
from allocbench.allocators.spec import Spec, parse
from allocbench.base.text import one_line
from allocbench.base.units import count, size
from allocbench.workloads.pytorch_settings import VARIABLES, PytorchRules, conf_of

if TYPE_CHECKING:
    from allocbench.workloads import AnyTrace

_BESIDE_SETTINGS = {"version", "per_process_memory_fraction"}
"""Options of `caching` with which recorded settings still apply."""


def in_force(text: str, trace: AnyTrace, *, version: bool = True) -> str:
    """The spec with the recorded settings and version, if it is `caching` without settings.

    A spec with its own settings has only those, like a program with its own PYTORCH_ALLOC_CONF;
    `caching:conf=` has PyTorch's defaults. Raises SpecError.
    """
    *wrappers, inner = parse(text).layers
    if inner.name != "caching":
        return text
    options = (version_of(trace) if version else {}) | inner.options
    if inner.options.keys() <= _BESIDE_SETTINGS:
        options = settings_of(trace) | options
    if options == inner.options:
        return text
    return inside(wrappers, Spec(inner.name, options))


def fixed(text: str, trace: AnyTrace) -> str:
    """The spec that has the same rules with any trace as this one has with a trace.

    Raises SpecError.
    """
    *wrappers, inner = parse(in_force(text, trace)).layers
    if inner.name != "caching":
        return text
    default = next(rules.version for rules in PytorchRules.sets() if rules.is_default)
    options = {"version": default} | inner.options
    if options.keys() <= _BESIDE_SETTINGS:
        options["conf"] = ""  # PyTorch's defaults
    return inside(wrappers, Spec(inner.name, options))


def conf(text: str) -> str:
    """The value of PyTorch's variable for a spec of `caching`; empty for its defaults.

    Raises SpecError for a spec of another allocator.
    """
    parsed = parse(text)
    if parsed.name != "caching" or parsed.inner:
        raise SpecError(f"'{text}': {VARIABLES[-1]} configures only caching")
    return conf_of(parsed.options)


def with_conf(text: str) -> str:
    """A spec of `caching` with its settings as a conf; any other spec unchanged."""
    parsed = parse(text)
    if parsed.name != "caching" or parsed.inner or not conf(text):
        return text
    version = {key: value for key, value in parsed.options.items() if key == "version"}
    return str(Spec("caching", version | {"conf": conf(text)}))


def inside(wrappers: Sequence[Spec], inner: Spec) -> str:
    """The spec of an allocator inside of wrappers, the outermost first."""
    for wrapper in reversed(wrappers):
        inner = Spec(wrapper.name, wrapper.options, inner)
    return str(inner)


def settings_of(trace: AnyTrace) -> dict[str, str]:
    """The options of `caching` for the settings that a trace was recorded with."""
    settings = trace.provenance.extra.get("settings")
    if not isinstance(settings, Mapping):
        return {}
    valid = {option.name for option in allocators.info("caching").options}
    return {str(name): str(value) for name, value in settings.items() if name in valid}


def version_of(trace: AnyTrace) -> dict[str, str]:
    """The option of `caching` for the version that a trace was recorded with.

    The result is empty without a known version, or with one whose rules are the default.
    """
    rules = PytorchRules.of(trace.provenance.torch or str(trace.provenance.extra.get("rules", "")))
    return {} if rules is None or rules.is_default else {"version": rules.version}


def rules_of(text: str, trace: AnyTrace) -> PytorchRules:
    """The rules that hold in a replay through `caching`. Raises SpecError."""
    options = parse(in_force(text, trace)).layers[-1].options
    return PytorchRules.of(options.get("version", "")) or PytorchRules()


def _why(text: str, trace: AnyTrace) -> str:
    """What decides about the options that `in_force` gives the spec."""
    given = parse(text).layers[-1].options
    if trace.provenance.torch or "version" in given or not version_of(trace):
        return ", as it was recorded"
    named = next(rules.since for rules in PytorchRules.sets() if rules.names_pools)
    return (
        "; the recording does not name its version of PyTorch, and its events name no pools, "
        f"as before {named}"
    )


def takes_over(text: str, trace: AnyTrace, device: str) -> bool | None:
    """Whether an allocator begins with the segments that a recording began with.

    If not, it starts by allocating the blocks in them. None if the trace begins with no segments,
    or if the allocator cannot be created. Raises SpecError for a text that is not a spec.
    """
    from allocbench.workloads import first_events  # needs pyarrow

    if trace.layout is None:
        return None
    begin = first_events(trace, trace.provenance.live_at_start)
    try:
        instance = allocators.make(in_force(text, trace), allocators.make_device(device))
    except SpecError:
        return None
    counts = allocators.replay(begin, instance, samples=1, keep=True).device
    return counts.malloc_calls + counts.map_calls == 0


def told(name: str, trace: AnyTrace, specs: Sequence[str], device: str) -> list[str]:
    """Notes on what a recording decides about the allocators of the specs."""
    lines = [f"{name}: {trace.coverage.sentence}"] if trace.coverage.sentence else []
    if note := trace.provenance.extra.get("note"):
        lines.append(f"{name}: {one_line(str(note))}")
    changed = {spec: in_force(spec, trace) for spec in specs}
    for spec, actual in changed.items():
        if actual != spec:
            lines.append(f"{name}: {spec} is replayed as {actual}{_why(spec, trace)}")
    if trace.layout is not None:
        taken = {spec: takes_over(spec, trace, device) for spec in specs}
        begun = [spec for spec, takes in taken.items() if takes]
        held = f"{size(trace.layout.reserved)} in {count(len(trace.layout.address), 'segment')}"
        line = f"{name}: the recording begins with {held}"
        if begun:
            line += f"; it is taken over by {', '.join(begun)}"
        if False in taken.values():
            rest = "the others" if begun else ", ".join(specs)
            line += f"; for {rest}, its live blocks are allocated first"
        lines.append(line)
    return lines
