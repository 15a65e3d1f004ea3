# SPDX-License-Identifier: Apache-2.0
"""The tasks of each stage, and their order."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from benchmarks.workshop.gpu import contestants
from benchmarks.workshop.gpu.programs import captured
from benchmarks.workshop.gpu.sharing import BLIND, MEMORY
from benchmarks.workshop.gpu.tasks import observations, same_results, sampled

HUNT_LIMIT = "24GiB"


@dataclass(frozen=True)
class Task:
    """One process: the module to run, its arguments, and its time limit in seconds.

    later: whether tasks of other stages are more valuable. gib: GPU memory that it uses at most; a
    task that measures times takes all of it, so that no other task runs meanwhile.
    """

    stage: str
    name: str
    module: str
    arguments: tuple[str, ...] = ()
    seconds: int = 120
    variables: tuple[tuple[str, str], ...] = field(default=())
    later: bool = False
    gib: int = MEMORY

    def command(self, output: str, *, dry: bool) -> list[str]:
        """The command line that writes its result to `output`."""
        module = f"benchmarks.workshop.gpu.{self.module}"
        more = ["--dry"] if dry else []
        return [sys.executable, "-m", module, *self.arguments, "--output", output, *more]


def blind() -> Iterator[Task]:
    """Rounds of runs that were predicted before they are measured."""
    for name in ("second", "third"):
        yield Task("blind", name, "tasks.blind", ("--round", name), seconds=480, gib=BLIND)


def published() -> Iterator[Task]:
    """Networks of a published comparison, over batches, with events and the driver's bytes."""
    for name in sampled.RUNS:
        yield Task("published", name, "tasks.sampled", ("--name", name), seconds=60)


def workspaces() -> Iterator[Task]:
    """The workspaces of convolutions by shape, type and layout."""
    arguments = ("--name", "program--workspace_sizes--grid")
    yield Task("workspaces", "grid", "tasks.observations", arguments, seconds=180, gib=16)


def context() -> Iterator[Task]:
    """What each library takes of the card when it is loaded."""
    yield Task("context", "device", "tasks.device_facts", seconds=100)


def calibration() -> Iterator[Task]:
    """Costs of driver calls, and how well they predict the device time of two workloads."""
    yield Task("calibration", "device_costs", "tasks.calibration", seconds=180)


def programs() -> Iterator[Task]:
    """The main workloads on every contestant, and once with freed memory filled with NaNs."""
    for workload in captured():
        yield from _on_all(workload)


def others() -> Iterator[Task]:
    """The other programs of the catalog."""
    for workload in captured(main=False):
        yield from _on_all(workload)


def drift() -> Iterator[Task]:
    """200 training steps with varying lengths, to see whether reserved memory keeps growing."""
    for who in contestants.everyone():
        yield _program("drift", "gpt2-train", who, "--steps", "200", "--repeats", "1")


def hunt() -> Iterator[Task]:
    """The largest batch that trains within a limit."""
    for who in contestants.everyone():
        arguments = ("--contestant", who.name, "--limit", HUNT_LIMIT)
        yield Task(
            "hunt",
            who.name,
            "tasks.hunt",
            arguments,
            variables=who.variables,
            later=_later(who.name),
        )


def cupy() -> Iterator[Task]:
    """A CuPy program on CuPy's own pools and on every strategy."""
    own = ("cupy-pool", "cupy-async-pool", "cupy-none")
    for name in (*own, *(who.name for who in contestants.ours())):
        later = name not in own and _later(name)
        yield Task("cupy", name, "tasks.cupy_program", ("--contestant", name), later=later)


def simulation() -> Iterator[Task]:
    """Compare captured traces with runs on the GPU, and `caching` with PyTorch's allocator."""
    for workload in captured():
        yield Task(
            "simulation", workload, "tasks.simulation", ("--workload", workload), seconds=180
        )


def driver() -> Iterator[Task]:
    """What the driver answers to sequences of calls, also on pointers to mapped pages."""
    yield Task("driver", "calls", "driver.calls", seconds=240)


def costs() -> Iterator[Task]:
    """What single calls of the driver cost, by bytes, live objects and load."""
    yield Task("costs", "call_costs", "tasks.call_costs", seconds=150)


def replays() -> Iterator[Task]:
    """Captured traces through every strategy on the GPU and on a simulated device."""
    yield Task("replays", "replays", "tasks.replays", seconds=240)


def integrity() -> Iterator[Task]:
    """A pattern in every block of a replay, compared when the block is freed."""
    yield Task("integrity", "integrity", "tasks.integrity", seconds=150)


def agreement() -> Iterator[Task]:
    """Record what PyTorch allocates, for a comparison with a null GPU; no time is measured."""
    yield Task("agreement", "device", "tasks.device_facts", seconds=100)
    for one in observations.every():
        arguments = ("--name", one.name)
        yield Task(
            "agreement", one.name, "tasks.observations", arguments, 120, one.variables, gib=one.gib
        )
    for spec in same_results.EVERY:
        name = "checks--" + re.sub(r"[^A-Za-z0-9_]+", "-", spec)
        yield Task("agreement", name, "tasks.same_results", ("--allocator", spec), 120, gib=4)


STAGES = {
    stage.__name__: stage
    for stage in (
        *(blind, published, workspaces, context, driver),
        *(programs, calibration, simulation, hunt, drift, cupy),
        *(costs, replays, integrity, others, agreement),
    )
}
ALWAYS = tuple(name for name in STAGES if name not in ("others", "agreement"))
"""The stages that run unless others are chosen."""


def in_order(stages: Iterable[str]) -> list[Task]:
    """The tasks of stages, in the order of their value.

    First come the contestants of `contestants.FIRST` in all stages, then the others.
    """
    return sorted(
        (task for stage in stages for task in STAGES[stage]()), key=lambda task: task.later
    )


def _later(contestant: str) -> bool:
    return contestant not in contestants.FIRST


def _on_all(workload: str) -> Iterator[Task]:
    for who in contestants.everyone():
        yield _program("programs", workload, who)
    arguments = ("--workload", workload, "--contestant", "caching", "--poison")
    yield Task("programs", f"{workload}--caching-poisoned", "tasks.program", arguments)


def _program(stage: str, workload: str, who: contestants.Contestant, *more: str) -> Task:
    return Task(
        stage,
        f"{workload}--{who.name}",
        "tasks.program",
        ("--workload", workload, "--contestant", who.name, *more),
        variables=who.variables,
        later=_later(who.name),
    )
