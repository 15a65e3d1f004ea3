# SPDX-License-Identifier: Apache-2.0
"""Every strategy by its name, and further options with which each is tested."""

import gc
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import hypothesis
import pytest

from allocbench import allocators
from allocbench.allocators.programs import Program
from allocbench.allocators.spec import parse
from tests import host_times, null_driver
from tests.oracle import Watched

pytest_plugins = ["tests.answer_inputs", "tests.gold", "tests.leftovers"]
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Libraries with threads of their own: on small tensors these only wait for each other."""

os.environ |= dict.fromkeys(ONE_THREAD, "1")  # before torch is imported, and for subprocesses
for variable in ("COLUMNS", "LINES", "FORCE_COLOR"):  # of a terminal; workers may inherit them
    os.environ.pop(variable, None)

# A shell ignores interrupts in what it runs in the background, and nohup ignores hangups; every
# child would inherit that. The suite itself still ignores hangups under nohup.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)

hypothesis.settings.register_profile("unhurried", deadline=None, max_examples=60)
hypothesis.settings.load_profile("unhurried")

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    """A strategy with some options, perhaps wrapped.

    `most` bytes is what they let it reserve, when that is less. `alignment` is in bytes.
    """

    spec: str
    most: int | None = None
    alignment: int = 256

    def __str__(self) -> str:
        return self.spec

    @property
    def info(self) -> allocators.StrategyInfo:
        return allocators.info(parse(self.spec).layers[-1].name)

    def largest_request(self, capacity: int) -> int:
        """Bytes that an empty device must serve in one block."""
        return self.info.largest_request(min(capacity, self.most or capacity))

    def make(self, capacity: int | str = 64 * MIB, **device: Any) -> Watched:
        on = allocators.SimulatedDevice(capacity, **device)
        return Watched(allocators.make(self.spec, on), self.alignment)


VARIANTS = {
    "arena": [Case("arena:segment=1MiB")],
    "bfc": [
        Case("bfc:allow_growth=false"),
        Case("bfc:garbage_collection=true"),
        Case("bfc:coalesce_regions=true,garbage_collection=true"),
        Case("bfc:fragmentation_fraction=0.001"),
        Case("bfc:memory_limit=48MiB,garbage_collection=true", most=48 * MIB),
        Case("bfc:per_process_memory_fraction=0.5", most=32 * MIB),
        Case("bfc:timestamped_frees=true"),
        Case("bfc:timestamped_frees=true,coalesce_regions=true,garbage_collection=true"),
        Case("bfc:retry_seconds=0.001"),
        Case("bfc:preset=onnxruntime"),
        Case("bfc:preset=onnxruntime,extend=requested,shrink=true"),
        Case("bfc:preset=jax", most=48 * MIB),
    ],
    "buddy": [Case("buddy:region=1MiB")],
    "bump": [Case("bump:segment=1MiB")],
    "caching": [
        Case("caching:expandable_segments=true", most=60 * MIB),
        Case("caching:expandable_segments=true,version=2.12", most=60 * MIB),
        Case("caching:max_split_size_mb=20,version=2.12"),
        Case("caching:roundup_power2_divisions=[1:4,2:8,>:2],version=2.11"),
        Case(
            "caching:conf=garbage_collection_threshold:0.3,per_process_memory_fraction:0.75",
            most=48 * MIB,
        ),
    ],
    "cupy_pool": [Case("cupy_pool:memory_limit=48MiB", most=48 * MIB)],
    "ggml_pool": [Case("ggml_pool:vmm=true", alignment=128)],
    "mlx_cache": [
        Case("mlx_cache:cache_limit=1MiB,memory_limit=8MiB"),
        Case("mlx_cache:buffers=2000"),
    ],
    "planned": [Case("planned:page=4MiB")],
    "rmm_pool": [
        Case("rmm_pool:initial_pool_size=0"),
        Case("rmm_pool:initial_pool_size=1MiB,maximum_pool_size=48MiB", most=48 * MIB),
    ],
    "expandable": [
        Case("expandable:page=4MiB,small=0,slack=0.5"),
        Case("expandable:slack=inf,small=64KiB"),
    ],
    "slab": [Case("slab:slab=4KiB"), Case("slab:slab=1MiB,empty_slabs=0")],
    "tlsf": [Case("tlsf:segment=1MiB")],
    "xla_vmm": [Case("xla_vmm:memory_fraction=0.75", most=48 * MIB)],
    "free_lists": [Case("free_lists:buffer=1MiB"), Case("free_lists:round=4096,buffer=3MiB")],
}
START = Callable[..., Program]
Make = Callable[..., allocators.Allocator]
WRAPPED = [
    Case("check:of=bfc"),
    Case("check:of=caching:expandable_segments=true", most=60 * MIB),
    # after a refusal, bfc asks for a tenth less
    Case("limit:bytes=48MiB,of=bfc:garbage_collection=true", most=43 * MIB),
    Case("limit:bytes=48MiB,of=buddy", most=32 * MIB),
    Case("limit:bytes=48MiB,of=naive", most=48 * MIB),
    Case("limit:bytes=48MiB,of=expandable", most=48 * MIB),
    Case("limit:bytes=48MiB,of=caching:expandable_segments=true", most=40 * MIB),
    Case("binning:smallest=256,largest=1KiB,of=rmm_pool"),
    Case("binning:smallest=512,largest=2KiB,of=caching", most=32 * MIB),
    Case("per_stream:of=arena"),
    Case("per_stream:of=caching"),
    Case("limit:bytes=48MiB,of=planned", most=48 * MIB),
    Case("record:of=free_lists"),
    Case("check:of=record:of=per_stream:of=limit:bytes=48MiB,of=caching", most=48 * MIB),
]
CASES = [
    *(case for name in allocators.names() for case in (Case(name), *VARIANTS.get(name, []))),
    *WRAPPED,
]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """As many as this process may use; each takes the memory of a Python with torch."""
    return min(len(os.sched_getaffinity(0)), 8)


def pytest_collection_finish() -> None:
    """Exempt what is imported by now from garbage collections; with torch each takes 0.1 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def made_up_times() -> Iterator[None]:
    """No test sees a measured host time unless it uses `measured_times`."""
    with host_times.made_up():
        yield


@pytest.fixture
def measured_times() -> Iterator[None]:
    with host_times.real():
        yield


@pytest.fixture(params=allocators.names())
def name(request: pytest.FixtureRequest) -> str:
    result: str = request.param
    return result


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    result: Case = request.param
    return result


@pytest.fixture
def make() -> Iterator[Make]:
    """An allocator created from a spec on its own device, checked when the test ends.

    Addresses go up, so that a snapshot lists segments in the order in which they were obtained.
    """
    created: list[allocators.Allocator] = []

    def one(spec: str, capacity: int | str = "1GiB", **device: Any) -> allocators.Allocator:
        on = allocators.SimulatedDevice(capacity, addresses="up", **device)
        created.append(allocators.make(spec, on))
        return created[-1]

    yield one
    for allocator in created:
        allocator.check()


@pytest.fixture(scope="session")
def loaded_driver() -> null_driver.Driver:
    return null_driver.Driver()


@pytest.fixture
def driver(loaded_driver: null_driver.Driver) -> Iterator[null_driver.Driver]:
    """The null GPU's driver, fresh; a test must leave nothing outstanding."""
    loaded_driver.fail()
    loaded_driver.forget()
    loaded_driver.set_capacity(null_driver.CAPACITY)
    yield loaded_driver
    loaded_driver.fail()
    if loaded_driver.outstanding():
        gc.collect()
    assert loaded_driver.outstanding() == {}


@pytest.fixture
def start(driver: null_driver.Driver) -> Iterator[START]:
    """Start programs, which are checked and closed when the test ends."""
    started: list[Program] = []

    def one(spec: str, **options: object) -> Program:
        started.append(Program(spec, **options))  # type: ignore[arg-type]
        return started[-1]

    yield one
    driver.fail()
    for program in started:
        for memory in program._core.memories():
            memory.allocator.check()
        program.close()
