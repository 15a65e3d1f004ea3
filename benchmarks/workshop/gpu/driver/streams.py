# SPDX-License-Identifier: Apache-2.0
"""Scenarios: streams and events, their states, and handles that are gone."""

import ctypes
from collections.abc import Callable

from benchmarks.workshop.gpu.driver.cuda import MIB, Cuda, line


def _recorded(cuda: Cuda, stream: int) -> int:
    event = cuda.handle("cuEventCreate", 0)
    cuda.need("cuEventRecord", event, stream)
    return event


def states(cuda: Cuda) -> None:
    """Events and streams while a stream is busy, and what makes their work end."""
    cuda.open()
    cuda.load_kernels()
    side, other = cuda.stream(1), cuda.stream(0)
    before = _recorded(cuda, side)
    cuda.need("cuCtxSynchronize")

    def show(label: str, *events: int) -> None:
        streams = [cuda.call("cuStreamQuery", one) for one in (side, other, 0)]
        line(label, streams=streams, events=[cuda.call("cuEventQuery", one) for one in events])

    cuda.busy(side)
    events = [before, *(_recorded(cuda, stream) for stream in (side, other, 0))]
    show("a stream that does not wait is busy", *events)
    cuda.idle(side)
    show("idle", *events)
    for name, call, arguments in (
        ("event synchronize", "cuEventSynchronize", None),
        ("stream synchronize", "cuStreamSynchronize", (side,)),
        ("context synchronize", "cuCtxSynchronize", ()),
        ("synchronize of the default stream", "cuStreamSynchronize", (0,)),
        ("synchronize of another stream", "cuStreamSynchronize", (other,)),
    ):
        cuda.busy(side)
        event = _recorded(cuda, side)
        status = cuda.call(call, *((event,) if arguments is None else arguments))
        line(name, status, event=cuda.call("cuEventQuery", event))
        cuda.idle(side)
        cuda.need("cuCtxSynchronize")
    cuda.busy(other)
    events = [_recorded(cuda, stream) for stream in (0, 1, side)]
    show("a stream that waits is busy", *events)
    cuda.idle(other)
    cuda.need("cuCtxSynchronize")
    cuda.busy(side)
    event = _recorded(cuda, side)
    line("wait", cuda.call("cuStreamWaitEvent", other, event, 0))
    show("a stream waits for an event", event)
    line("destroy of a busy stream", cuda.call("cuStreamDestroy_v2", side))
    line("destroy of a pending event", cuda.call("cuEventDestroy_v2", event))
    cuda.idle(side)


def elapsed_times(cuda: Cuda) -> None:
    """The status of cuEventElapsedTime in the states of its events."""
    cuda.open()
    cuda.load_kernels()
    stream, time = cuda.stream(), ctypes.c_float()
    plain, untimed = cuda.handle("cuEventCreate", 0), cuda.handle("cuEventCreate", 2)

    def elapsed(label: str, first: int, second: int) -> None:
        line(label, cuda.call("cuEventElapsedTime", ctypes.byref(time), first, second))

    line("query of an event that was not recorded", cuda.call("cuEventQuery", plain))
    line("synchronize of it", cuda.call("cuEventSynchronize", plain))
    line("wait for it", cuda.call("cuStreamWaitEvent", stream, plain, 0))
    first = _recorded(cuda, stream)
    elapsed("not recorded", first, plain)
    cuda.need("cuEventRecord", untimed, stream)
    cuda.need("cuCtxSynchronize")
    elapsed("without times", first, untimed)
    elapsed("the same", first, first)
    cuda.busy(stream)
    last = _recorded(cuda, stream)
    elapsed("not ready", first, last)
    cuda.idle(stream)
    cuda.need("cuCtxSynchronize")
    elapsed("ready", first, last)
    line("unknown flags of an event", cuda.number("cuEventCreate", 64)[0])
    line("unknown flags of a stream", cuda.number("cuStreamCreate", 64)[0])
    for priority in (0, -1, -5, -99, 5):
        wide = ctypes.c_int(priority)
        line(f"priority {priority}", cuda.number("cuStreamCreateWithPriority", 1, wide)[0])


def _dead(kind: str, name: str, *arguments: int | None) -> Callable[[Cuda], None]:
    """A scenario: a call with the handle (None in the arguments) of a destroyed stream or event."""

    def scenario(cuda: Cuda) -> None:
        cuda.open()
        stream = cuda.stream()
        handle = stream if kind == "Stream" else cuda.handle("cuEventCreate", 0)
        line("destroy", cuda.call(f"cu{kind}Destroy_v2", handle))
        given = [handle if one is None else one for one in arguments]
        if name.startswith("cuMemAlloc"):
            line(name, cuda.number(name, *given)[0])
        else:
            line(name, cuda.call(name, *given))

    scenario.__name__ = f"{name}_of_a_destroyed_{kind.lower()}"
    return scenario


DEAD = (
    _dead("Stream", "cuStreamDestroy_v2", None),
    _dead("Stream", "cuStreamQuery", None),
    _dead("Stream", "cuStreamSynchronize", None),
    _dead("Stream", "cuMemAllocAsync", MIB, None),
    _dead("Event", "cuEventDestroy_v2", None),
    _dead("Event", "cuEventRecord", None, 0),
    _dead("Event", "cuEventQuery", None),
    _dead("Event", "cuEventSynchronize", None),
    _dead("Event", "cuStreamWaitEvent", 0, None, 0),
)

SCENARIOS = (states, elapsed_times, *DEAD)
