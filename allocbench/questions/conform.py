# SPDX-License-Identifier: Apache-2.0
"""Which promises of a GPU memory allocator does an allocator keep?"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.connection import Connection

from allocbench import allocators
from allocbench.allocators import Allocator, OutOfMemory, SpecError
from allocbench.base.units import size as in_words

CAPACITY = 8 << 30  # bytes of the simulated device
ALIGNMENT = 256  # bytes, as cudaMalloc promises
CALLS = 4000  # requests of a walk, most of them small, of up to 64 MiB
ROUNDS = 12
SECONDS = 120
"""After that, a promise that is still being tried is broken."""
_FORK = multiprocessing.get_context("fork")


@dataclass
class Promise:
    """A promise. required: of every allocator. seen: what shows that it does not hold, or ""."""

    name: str
    required: bool
    holds: bool
    seen: str


@dataclass
class _Walk:
    """Random requests and frees on an allocator; `live` are addresses by number of the request."""

    allocator: Allocator
    random: random.Random = field(default_factory=lambda: random.Random(1))
    live: dict[int, int] = field(default_factory=dict)
    addresses: list[int] = field(default_factory=list)
    refused: int = 0

    def run(self, calls: int = CALLS) -> None:
        """Make `calls` requests and about as many frees; an allocator may refuse some."""
        for _ in range(calls):
            size = int((64 << 20) ** self.random.random())
            try:
                address = self.allocator.allocate(size)
            except OutOfMemory:
                self.refused += 1
                continue
            self.live[len(self.addresses)] = address
            self.addresses.append(address)
            while len(self.live) > 40 or (self.live and self.random.random() < 0.45):
                self.free(self.random.choice(list(self.live)))

    def free(self, number: int) -> None:
        self.allocator.deallocate(self.live.pop(number))

    def free_all(self) -> None:
        for number in list(self.live):
            self.free(number)


def conform(spec: str) -> list[Promise]:
    """Try each promise on a new allocator of `spec` on a simulated device of 8 GiB.

    Each is tried in a process of its own, which may crash; if one does not end, the others are not
    tried. Raises SpecError if the allocator cannot be made.
    """
    if made := _seen_apart(partial(_made, spec)):
        raise SpecError(made)
    _make(spec)  # so that no later process imports its module
    promises: list[Promise] = []
    for name, required, try_it in _PROMISES:
        ends = not any(promise.seen.startswith(_NO_ANSWER) for promise in promises)
        seen = _seen_apart(partial(_broken, spec, try_it)) if ends else "not tried"
        promises.append(Promise(name, required, not seen, seen))
    return promises


def as_json(spec: str, promises: list[Promise]) -> dict[str, object]:
    """The JSON of an answer."""
    conforms = all(promise.holds for promise in promises if promise.required)
    return {"allocator": spec, "conforms": conforms, "promises": [asdict(one) for one in promises]}


def _make(spec: str) -> Allocator:
    """Every block is compared with those around it, by the wrapper `check`."""
    return allocators.make(f"check:of={spec}", allocators.make_device(f"sim:{CAPACITY}"))


_NO_ANSWER = "no answer within"


def _seen_apart(seen: Callable[[], str]) -> str:
    """What a function returns in another process, or how that ended."""
    receiver, sender = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_send, args=(sender, seen))
    process.start()
    sender.close()
    try:
        if not receiver.poll(SECONDS):
            return f"{_NO_ANSWER} {SECONDS} seconds"
        told: str = receiver.recv()
        return told
    except EOFError:
        process.join()
        code = process.exitcode or 0
        ended = signal.strsignal(-code) if code < 0 else f"with exit code {code}"
        return f"it ended the process: {ended}"
    finally:
        process.kill()
        process.join()


def _send(sender: Connection, seen: Callable[[], str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process ends this one
    os.dup2(2, 1)  # what an allocator prints is no part of the answer
    sender.send(seen())


def _made(spec: str) -> str:
    try:
        _make(spec)
    except SpecError as error:
        return str(error)
    return ""


def _broken(spec: str, try_it: Callable[[Callable[[], Allocator]], str | None]) -> str:
    try:
        return try_it(lambda: _make(spec)) or ""
    except (OutOfMemory, SpecError, allocators.InvariantViolation) as error:
        return str(error).partition(";")[0].partition("\n")[0]


def _walk(make: Callable[[], Allocator]) -> str | None:
    walk = _Walk(make())
    walk.run()
    walk.free_all()
    walk.allocator.check()
    return None


def _alignment(make: Callable[[], Allocator]) -> str | None:
    walk = _Walk(make())
    walk.run()
    unaligned = [address for address in walk.addresses if address % ALIGNMENT]
    return f"{len(unaligned):,} of {len(walk.addresses):,} are not" if unaligned else None


def _reuse(make: Callable[[], Allocator]) -> str | None:
    walk, reserved = _Walk(make()), []
    for _ in range(ROUNDS):
        walk.random.seed(1)
        walk.run(CALLS // ROUNDS)
        walk.free_all()
        reserved.append(walk.allocator.stats().peak_reserved)
    if walk.refused:
        return f"it refused {walk.refused:,} requests of rounds that are alike"
    grew = reserved[-1] - reserved[ROUNDS // 2]
    if grew == 0:
        return None
    return f"reserved bytes grew by {in_words(grew)} from round {ROUNDS // 2} to round {ROUNDS}"


def _refusal(make: Callable[[], Allocator]) -> str | None:
    allocator = make()
    kept = allocator.allocate(1 << 20)
    try:
        allocator.allocate(CAPACITY + 1)
        return "it served a request larger than the device"
    except OutOfMemory:
        allocator.deallocate(kept)
        allocator.deallocate(allocator.allocate(1 << 20))
    return None


def _fills(make: Callable[[], Allocator]) -> str | None:
    allocator, served, size = make(), 0, 64 << 20
    try:
        while served < CAPACITY:
            allocator.allocate(size)
            served += size
    except OutOfMemory:
        return f"it refused after {in_words(served)} in blocks of {in_words(size)}"
    return None


def _returns(make: Callable[[], Allocator]) -> str | None:
    allocator, size = make(), 1 << 20
    for address in [allocator.allocate(size) for _ in range(CAPACITY // size // 2)]:
        allocator.deallocate(address)
    allocator.deallocate(allocator.allocate(CAPACITY * 3 // 4))
    return None


def _trim(make: Callable[[], Allocator]) -> str | None:
    walk = _Walk(make())
    walk.run(CALLS // 10)
    walk.free_all()
    walk.allocator.trim()
    left = walk.allocator.stats().reserved
    return f"{in_words(left)} stayed reserved" if left else None


def _repeatable(make: Callable[[], Allocator]) -> str | None:
    walks = [_Walk(make()) for _ in range(2)]
    for walk in walks:
        walk.run(CALLS // 4)
    first, second = (walk.addresses for walk in walks)
    differ = sum(one != other for one, other in zip(first, second, strict=True))
    return f"{differ:,} of {len(first):,} addresses differ between two runs" if differ else None


_PROMISES = (
    ("blocks do not overlap, and lie in memory of the device", True, _walk),
    (f"addresses are multiples of {ALIGNMENT}", True, _alignment),
    ("freed memory serves again", True, _reuse),
    ("a request that is too large is refused, and later ones are served", True, _refusal),
    ("the same requests get the same addresses", False, _repeatable),
    ("blocks of 64 MiB can fill the device", False, _fills),
    ("cached memory goes back to the device before a request fails", False, _returns),
    ("trim gives back everything when nothing is in use", False, _trim),
)
