# SPDX-License-Identifier: Apache-2.0
"""A picture of each strategy: where it places the blocks of one small trace, and when.

    python -m docs.generate.pictures

The vertical axis is memory, the horizontal axis the events of the trace. Every strategy serves the
same trace, so the pictures can be compared. Each picture carries a digest of what it shows, so that
a test can find a picture that is out of date.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from allocbench import allocators
from allocbench.base import units
from allocbench.workloads import ALLOC, FREE, MARK, Trace

FOLDER = Path(__file__).parent.parent / "strategies" / "pictures"
DEVICE = "sim:1GiB"
KIB, MIB = 1 << 10, 1 << 20
SMALLER = {  # where the default is made for a whole GPU
    "arena": "arena:segment=16MiB",
    "buddy": "buddy:region=64MiB",
    "bump": "bump:segment=64MiB",
    "free_lists": "free_lists:buffer=64MiB",
    "rmm_arena": "rmm_arena:arena_size=64MiB",
    "rmm_pool": "rmm_pool:initial_pool_size=64MiB",
    "tlsf": "tlsf:segment=32MiB",
}
BLOCKS = {"W": 5 * MIB, "A": 6 * MIB, "B": 700 * KIB, "C": 11 * MIB, "D": 3 * MIB, "E": 13 * MIB}
STEP = ("step", "+A", "+B", "+C", "-B", "-A", "+D", "-C", "+E", "-D", "-E")
SCALES = (1.0, 1.0, 1.2, 1.1)  # of the blocks of each step
_GAP = MIB // 2  # between segments, as drawn
_FREE, _INK, _LINE = "#dfe3e8", "#1f2933", "#7b8794"


@dataclass(frozen=True)
class Rect:
    """A block, or memory held without a break, from event `begin` up to event `end`.

    Addresses and sizes in bytes; `name` is empty for held memory.
    """

    begin: int
    end: int
    address: int
    size: int
    requested: int = 0
    name: str = ""


@dataclass(frozen=True)
class Drawn:
    """What a picture shows."""

    spec: str
    held: list[Rect]
    blocks: list[Rect]
    peak_reserved: int
    max_load: int

    @property
    def digest(self) -> str:
        """Of everything that the picture shows."""
        return hashlib.sha256(repr(self).encode()).hexdigest()


def script() -> list[tuple[str, int]]:
    """The events, as +block, -block or step, with the bytes of each request."""
    steps = [(event, scale) for scale in SCALES for event in STEP]
    return [("+W", BLOCKS["W"])] + [
        (event, int(scale * BLOCKS[event[1:]]) if event[0] == "+" else 0) for event, scale in steps
    ]


def trace(length: int) -> Trace:
    """The first events: one block that stays, then steps that differ in the sizes of blocks."""
    events = script()[:length]
    ids = {name: number for number, name in enumerate(BLOCKS)}
    ops = [{"+": ALLOC, "-": FREE}.get(event[0], MARK) for event, _ in events]
    return Trace(
        op=np.array(ops, np.uint8),
        block=np.array([ids.get(event[1:], 0) for event, _ in events], np.uint32),
        size=np.array([size for _, size in events], np.uint64),
        stream=np.zeros(len(events), np.uint16),
        labels=("step",),
    )


def names() -> list[str]:
    """The strategies that a simulated device can run."""
    return [info.name for info in allocators.strategies() if not info.from_driver_pool]


def drawn(name: str) -> Drawn:
    """Where a strategy holds memory and places blocks, seen after each event of the trace."""
    spec, last = SMALLER.get(name, name), len(script())
    held, blocks = Runs(), Runs()
    labels: dict[int, str] = {}  # address -> block
    for event, (what, _) in enumerate(script()):
        allocator = allocators.make(spec, allocators.make_device(DEVICE))
        found = allocators.replay(trace(event + 1), allocator, keep=True)
        segments = allocator.snapshot()
        live = {b.address: b for s in segments for b in s.blocks if b.allocated}
        labels = {address: labels.get(address, what[1:]) for address in live}
        now = {Rect(0, 0, a, b.size, b.requested, labels[a]) for a, b in live.items()}
        blocks.see(event, now)
        held.see(event, {Rect(0, 0, address, size) for address, size in joined(segments)})
    stats = found.stats
    return Drawn(spec, held.ended(last), blocks.ended(last), stats.peak_reserved, found.max_load)


class Runs:
    """Rectangles that stay the same over several events."""

    def __init__(self) -> None:
        self._open: dict[Rect, int] = {}
        self._done: list[Rect] = []

    def see(self, event: int, now: set[Rect]) -> None:
        """Record the rectangles that exist after an event."""
        for rect in self._open.keys() - now:
            self._close(rect, event)
        for rect in now:
            self._open.setdefault(rect, event)

    def _close(self, rect: Rect, end: int) -> None:
        begin = self._open.pop(rect)
        self._done.append(Rect(begin, end, rect.address, rect.size, rect.requested, rect.name))

    def ended(self, event: int) -> list[Rect]:
        """All of them, in order, those that still last ended at an event."""
        for rect in [*self._open]:
            self._close(rect, event)
        return sorted(self._done, key=lambda rect: (rect.begin, rect.address, rect.end))


def joined(segments: Iterable[allocators.Segment]) -> list[tuple[int, int]]:
    """Address and size of memory held without a break."""
    ranges: list[tuple[int, int]] = []
    for segment in segments:
        if ranges and sum(ranges[-1]) == segment.address:
            address, size = ranges.pop()
            ranges.append((address, size + segment.size))
        else:
            ranges.append((segment.address, segment.size))
    return ranges


class Height:
    """Addresses as heights in MiB: ranges that are never held are left out."""

    def __init__(self, held: Iterable[Rect]) -> None:
        self._bases: list[tuple[int, int, int]] = []  # first address, end, height in bytes
        top = 0
        for rect in sorted(held, key=lambda rect: rect.address):
            end = rect.address + rect.size
            if self._bases and rect.address <= self._bases[-1][1]:
                first, before, base = self._bases[-1]
                self._bases[-1] = (first, max(before, end), base)
            else:
                self._bases.append((rect.address, end, top))
            first, end, base = self._bases[-1]
            top = base + end - first + _GAP
        self.top = (top - _GAP) / MIB

    def __call__(self, address: int) -> float:
        """MiB from the bottom of the picture."""
        first, _, base = next(b for b in reversed(self._bases) if b[0] <= address)
        return (base + address - first) / MIB


def draw(drawn: Drawn) -> Figure:
    """The picture of what a strategy did."""
    height = Height(drawn.held)
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.add_subplot()

    def add(rect: Rect, size: int, color: Any, **look: Any) -> None:
        corner = rect.begin, height(rect.address)
        shape = Rectangle(corner, rect.end - rect.begin, size / MIB, fc=color, **look)
        axes.add_patch(shape).set_clip_on(False)

    for rect in drawn.held:
        add(rect, rect.size, _FREE, ec=_FREE, lw=0.3)
    colors = dict(zip(BLOCKS, sns.color_palette("colorblind"), strict=False))
    for rect in drawn.blocks:
        add(rect, rect.size, colors[rect.name], alpha=0.45, ec="white", lw=0.6)
        add(rect, rect.requested, colors[rect.name], ec="white", lw=0.6)
        if rect.requested >= height.top * MIB / 22:
            center = height(rect.address) + rect.requested / MIB / 2
            middle = (rect.begin + rect.end) / 2
            axes.text(middle, center, rect.name, color="white", ha="center", va="center")
    marks = [event for event, (what, _) in enumerate(script()) if what == "step"]
    for number, event in enumerate(marks, 1):
        axes.axvline(event, color=_LINE, lw=0.8, ls=(0, (3, 3)))
        axes.text(event + 0.2, height.top * 1.02, f"step {number}", color=_INK, va="bottom")
    axes.set(xlim=(0, len(script())), ylim=(0, height.top * 1.1))
    axes.set(xlabel="event", ylabel="MiB, segments stacked by address")
    peak, load = units.size(drawn.peak_reserved), units.size(drawn.max_load)
    title = f"{drawn.spec}: peak reserved {peak}, max load {load}"
    axes.set_title(title, loc="left", color=_INK)
    sns.despine(figure)
    return figure


def svg(drawn: Drawn) -> str:
    """The picture as SVG, the same text each time, with the digest of what it shows."""
    buffer = StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "allocbench"}
    with mpl.rc_context(
        settings | {"font.family": "sans-serif", "font.size": 9.5, "axes.titlesize": 10}
    ):
        metadata = {"Date": None, "Creator": None, "Identifier": drawn.digest}
        draw(drawn).savefig(buffer, format="svg", metadata=metadata)
    text = re.sub(r" ?\n(?=[LzM\"C])", " ", buffer.getvalue())
    return re.sub(r"-?\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}", text)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name in names():
        path = FOLDER / f"{name}.svg"
        path.write_text(svg(drawn(name)), encoding="utf-8")
        print(path)
