# SPDX-License-Identifier: Apache-2.0
"""What a trace shows of the program that it comes from, and what it cannot show."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from allocbench.base import units
from allocbench.workloads.vocabulary import Provenance, TraceError

Begin = Literal["start", "later"]
End = Literal["exit", "stopped", "open", "failure"]
UNSEEN = "before the recording"
"""Label of the alloc that stands for blocks without events."""
_VALUES = {"begins": get_args(Begin), "ends": get_args(End)}


@dataclass(frozen=True)
class Coverage:
    """The part of a program that a trace has. The default is all of it. Sizes in bytes.

    begins: "start" if the trace has the program's first alloc, "later" if the recording began
        afterwards or lost its oldest events.
    ends: "exit" if the program made no request after the last event, "stopped" if it was ended
        after a number of steps, "open" if that is not known, as in a snapshot that a running
        program writes, "failure" if the last request failed.
    events: False if the recording has no events, but only what was live when it was written.
    held: reserved by the recorded allocator before the first event.
    live: allocated to blocks before the first event.
    unseen: the part of `live` whose blocks have no events; one alloc of the trace stands for them.
    reserved: by the recorded allocator after the last event, or when the last request failed.
    request: size of the request that failed last, 0 if none did or the program went on.
    device_free: free on the device at that time; None if the recording does not say.
    allocs_missing, frees_missing: events that are missing, because others contradict each other.
    contradiction: why the final segments contradict the events, or "".
    shared: requested bytes of all blocks that were used on another stream, if the trace has them
        reused as soon as they were freed; else 0.
    shared_load: the largest load if these blocks are held until the program next waits for the GPU.
    masks: the lines, as "train.py:9 model.py:62", where masks of unknown values determine a shape;
        the trace has them select half of their elements.
    masks_load: the largest load if they select all.
    workspace: bytes that a convolution may need for its workspace although the trace gives it none,
        because nothing was measured on that card.
    """

    begins: Begin = "start"
    ends: End = "exit"
    events: bool = True
    held: int = 0
    live: int = 0
    unseen: int = 0
    reserved: int = 0
    request: int = 0
    device_free: int | None = None
    allocs_missing: int = 0
    frees_missing: int = 0
    contradiction: str = ""
    shared: int = 0
    shared_load: int = 0
    masks: str = ""
    masks_load: int = 0
    workspace: int = 0

    @property
    def whole(self) -> bool:
        """Whether the trace has every request of the program."""
        gaps = self.allocs_missing, self.frees_missing, self.contradiction, self.shared
        from_start_to_exit = self.begins == "start" and self.ends == "exit" and self.events
        return from_start_to_exit and not any((*gaps, self.masks, self.workspace))

    @property
    def bound(self) -> bool:
        """Whether the program may need more than the trace does."""
        return not replace(self, frees_missing=0).whole

    @property
    def card(self) -> int | None:
        """Bytes that the allocator could have when its last request failed."""
        return None if self.device_free is None else self.reserved + self.device_free

    def range(self, load: int) -> str:
        """How the largest load depends on what is not known, in one sentence; "" if it does not."""
        if self.workspace and not self.masks:
            most = units.size(load + self.workspace)
            return (
                f"The largest load is {units.size(load)}, or up to {most}"
                " if cuDNN chooses a kernel with a workspace for convolutions of one pixel and few"
                " channels, which was not measured on this card."
            )
        if not self.masks:
            return ""
        first, *others = self.masks.split()
        where = first + (f" and {units.count(len(others), 'other line')}" if others else "")
        return (
            f"The largest load is {units.size(load)} if the masks of computed values at {where}"
            f" select half of their elements, {units.size(self.masks_load)} if all: --value"
            f" {first}=NUMBER sets it."
        )

    @property
    def sentence(self) -> str:
        """What the trace lacks, in one sentence; "" for a whole program."""
        if self.whole:
            return ""
        size = units.size
        if not self.events:
            return (
                "the recording has no events, so the need is unknown: between"
                f" {size(self.live)}, which were live, and {size(self.held)}, which were reserved"
            )
        parts = []
        if self.begins == "later":
            memory = f"{size(self.held)} reserved and {size(self.live)} live"
            parts.append(
                f"begins with {memory if self.held else 'unknown memory in use'} (it was started"
                " late, or lost its oldest events)"
            )
        if self.ends == "failure":
            parts.append(f"ends with a request for {size(self.request)} that failed")
            if self.card is not None:
                parts[-1] += f" when {size(self.card)} were reserved or free"
        elif self.ends == "stopped":
            parts.append("ends where allocbench stopped the program")
        elif self.ends == "open":
            parts.append("ends where the program may have gone on")
        if self.allocs_missing or self.frees_missing:
            counts = (self.allocs_missing, "alloc"), (self.frees_missing, "free")
            missing = [units.count(number, what) for number, what in counts if number]
            parts.append(f"lacks {' and '.join(missing)}")
        if self.contradiction:
            parts.append(f"contradicts itself: {self.contradiction}")
        if self.shared:
            parts.append(
                f"reuses at once {size(self.shared)} in blocks that were used on another stream; if"
                " they are held until the program next waits for the GPU, the largest load is"
                f" {size(self.shared_load)}"
            )
        if self.masks:
            parts.append("has masks of computed values select half of their elements")
        if self.workspace:
            parts.append(
                f"has no workspace for convolutions that may ask for up to {size(self.workspace)}"
            )
        needs = "; the program may need more than the trace" if self.bound else ""
        return f"the recording {units.names(parts, len(parts))}{needs}"


WHOLE = Coverage()
"""A program from its first request to its last."""


def imported(provenance: Provenance) -> Coverage:
    """That of a trace in a file which does not say, by its provenance."""
    extra = provenance.extra
    if not extra.get("format"):
        return WHOLE
    failed = int(extra.get("failed_request", 0))
    return Coverage(
        begins="later" if provenance.live_at_start else "start",
        ends="failure" if failed else "open",
        request=failed,
        allocs_missing=int(extra.get("frees_left_out", 0)),
        frees_missing=int(extra.get("frees_missing", 0)),
    )


def to_json(coverage: Coverage) -> dict[str, Any]:
    """The fields that differ from those of WHOLE."""
    whole = asdict(WHOLE)
    return {name: value for name, value in asdict(coverage).items() if value != whole[name]}


def from_json(stored: Any) -> Coverage:
    """The coverage that `to_json` stored; raises TraceError for anything else."""
    known = {field.name: getattr(WHOLE, field.name) for field in fields(Coverage)}
    for name, value in stored.items() if isinstance(stored, Mapping) else [("coverage", stored)]:
        default = known.get(name)
        kind = int if name == "device_free" else type(default)
        valid = name in known and type(value) is kind and value in _VALUES.get(name, (value,))
        if not valid or (kind is int and value < 0):
            raise TraceError(f"the coverage in the trace's metadata has {name} {value!r}")
    return Coverage(**stored)
