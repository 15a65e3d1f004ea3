# SPDX-License-Identifier: Apache-2.0
"""Capacities: the smallest device on which a trace completes, and one with ample room."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from allocbench import allocators
from allocbench.allocators import SpecError, spec
from allocbench.replays import LONG
from allocbench.replays.recorded_settings import in_force
from allocbench.workloads import AnyTrace

STEP = 2 << 20
"""Bytes; capacities are searched in multiples of this."""
LIMIT = 1 << 50
"""Bytes; no capacity above this is tried."""
_LARGEST = (1 << 62) - 1  # bytes of a simulated device
_ROUGH = 0.005
_PROBES = 16  # capacities tried, evenly spread, to either side of one found
_PROBES_OF_LONG = 4


@dataclass(frozen=True)
class Boundary:
    """The smallest capacity that is enough, and results around it. Bytes, multiples of STEP.

    capacity: the trace completes on it and fails on STEP less, and it failed on every smaller one
    that was tried. None if it completes on no capacity up to LIMIT. Not a multiple of STEP if it
    was requested in `also` and the next multiple is too small. fails_above: larger capacities on
    which the trace failed, ascending; the allocator is then not monotone.
    """

    capacity: int | None
    fails_above: tuple[int, ...] = ()


@dataclass(frozen=True)
class Shown:
    """Whether a trace completes on every capacity of at least `first` and less than `below` bytes.

    A device of any of them answers each call of the replay that showed it in the same way.
    """

    completes: bool
    first: int
    below: int


def rough_capacity(
    enough: Callable[[int], bool], *, max_load: int, peak_reserved: int, rival: int | None = None
) -> int | None:
    """Bytes of a device on which every request of a trace succeeds, or None.

    On a device smaller by the share `_ROUGH`, or by STEP, a request fails. Several times as fast as
    `boundary`, which also checks around its result; the arguments are the same. With a `rival`, in
    bytes, any capacity that is enough will do if one below the rival by that share is not.
    """
    between = _completing(enough, max_load, peak_reserved)
    if between is None:
        return None
    low, high = between
    if rival is not None:
        below = int(rival * (1 - _ROUGH)) // STEP * STEP
        if low < below < high:
            if not enough(below):
                return high
            high = below
    return _bisect(enough, low, high, _ROUGH)


def boundary(
    enough: Callable[[int], bool],
    *,
    max_load: int,
    peak_reserved: int,
    above: bool = True,
    also: Iterable[int] = (),
    events: int = 0,
) -> Boundary:
    """The smallest device on which every request of a trace succeeds.

    enough: whether every request succeeds on a device of that many bytes; see `trial`.

    Bisection over multiples of STEP between two capacities. The lower one is the largest multiple
    below `max_load`, which is too small for any allocator. The upper one is max(max_load,
    peak_reserved), rounded up to STEP, and doubled until the trace completes.

    An allocator may complete on one capacity and fail on a larger one (regions that grow with what
    is left, for example), so bisection may end at any of several boundaries. Therefore capacities
    below the result are tried: those in `also` (bytes), some close by and some evenly spread. If
    one of them is enough, bisection continues from there. With `above`, larger capacities are tried
    as well, up to twice the result. Capacities between those tried remain unknown.

    `max_load` and `peak_reserved`, in bytes, are those of a replay of the trace. With more than
    LONG `events`, fewer capacities are tried around the result.
    """
    between = _completing(enough, max_load, peak_reserved)
    if between is None:
        return Boundary(None)
    probes = _PROBES_OF_LONG if events > LONG else _PROBES
    floor = _floor(max_load)
    wanted = sorted(also)
    failing: set[int] = set()
    least = _bisect(enough, *between)
    while True:
        near = [
            *_around(least, floor, probes),
            *(capacity for capacity in wanted if floor < capacity <= least - STEP),
        ]
        below = next(filter(enough, near), None)
        if below is None:
            break
        failing.add(least - STEP)
        least = _bisect(enough, floor, below)
        if enough(_up(least)):
            least = _up(least)
    if above:
        failing.update(
            capacity for capacity in _around(least, 2 * least, probes) if not enough(capacity)
        )
    return Boundary(least, tuple(sorted(failing)))


def _up(capacity: int) -> int:
    return -(-capacity // STEP) * STEP


def _floor(max_load: int) -> int:
    return (max(1, max_load) - 1) // STEP * STEP


def _completing(
    enough: Callable[[int], bool], max_load: int, peak_reserved: int
) -> tuple[int, int] | None:
    """A capacity that is too small and a larger one that is enough; None if none is enough."""
    low, high = _floor(max_load), _up(max(1, max_load, peak_reserved))
    while not enough(high):
        low, high = high, 2 * high
        if high > LIMIT:
            return None
    return low, high


def _bisect(enough: Callable[[int], bool], low: int, high: int, share: float = 0.0) -> int:
    """A capacity that is enough, while one smaller by STEP or by `share` is not.

    `high` is enough, `low` is not.
    """
    while high - low > max(STEP, share * high):
        # `high` may lie between two multiples: the one below the middle is then perhaps `low`.
        middle = max(low + STEP, (low + high) // (2 * STEP) * STEP)
        if enough(middle):
            high = middle
        else:
            low = middle
    return high


def _around(capacity: int, end: int, probes: int) -> list[int]:
    """Multiples of STEP between `capacity` and `end`, exclusive: doubling, and evenly spaced."""
    most = abs(end - capacity) // STEP - 1
    doubling = [1 << power for power in range(max(0, most).bit_length())]
    even = [most * n // probes for n in range(1, probes + 1)]
    sign = 1 if end > capacity else -1
    return [capacity + sign * n * STEP for n in sorted({*doubling, *even} - {0}) if n <= most]


def with_capacity(device: str, capacity: int) -> str:
    """The spec of the same device with another capacity in bytes; raises SpecError."""
    if _is_cuda(device):
        parsed, option = spec.parse(device, first="ordinal"), "limit"
    else:
        parsed, option = spec.parse(device, first="capacity"), "capacity"
    kept = {name: value for name, value in parsed.options.items() if name != "context"}
    return str(spec.Spec(parsed.name, kept | {option: str(capacity)}))


def roomy(device: str, trace: AnyTrace) -> str:
    """The spec of the same device, with room for twice all that `trace` ever allocates.

    The factor covers bytes at the end of segments into which no block fits. The
    size of a real GPU does not change.
    """
    if _is_cuda(device):
        return device
    needed = min(2 * trace.requested + (1 << 40), _LARGEST)
    return with_capacity(device, max(needed, allocators.make_device(device).capacity))


def _is_cuda(device: str) -> bool:
    return spec.name_of(device) == "cuda"


def trial(trace: AnyTrace, allocator: str, device: str, capacity: int) -> Shown:
    """What a replay shows on the same device with another capacity in bytes.

    Other options of the specs apply. If the device or the allocator cannot be created, the trace
    does not complete.
    """
    try:
        opened = allocators.make_device(with_capacity(device, capacity))
        made = allocators.make(in_force(allocator, trace), opened)
        return Shown(allocators.completes(trace, made), *opened.same_answers)
    except SpecError:
        return Shown(False, capacity, capacity + 1)
