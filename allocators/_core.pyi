"""The native core of allocbench."""

from collections.abc import Callable, Mapping, Sequence
import enum
from typing import Annotated, Any

import numpy
from numpy.typing import NDArray


class OutOfMemory(MemoryError):
    pass

class BadFree(ValueError):
    pass

class InvariantViolation(AssertionError):
    pass

class DeviceError(RuntimeError):
    pass

class SpecError(ValueError):
    pass

class Unavailable(SpecError):
    pass

class Block:
    """Part of a segment; `requested` is 0 in a free block."""

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def requested(self) -> int: ...

    @property
    def allocated(self) -> bool: ...

class Segment:
    """A range held from the device, tiled by its blocks."""

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def blocks(self) -> list[Block]: ...

class Stats:
    """Bytes now and at their peak, and counts of calls."""

    @property
    def requested(self) -> int: ...

    @property
    def allocated(self) -> int: ...

    @property
    def reserved(self) -> int: ...

    @property
    def peak_requested(self) -> int: ...

    @property
    def peak_allocated(self) -> int: ...

    @property
    def peak_reserved(self) -> int: ...

    @property
    def allocations(self) -> int: ...

    @property
    def frees(self) -> int: ...

    @property
    def failures(self) -> int: ...

    @property
    def retries(self) -> int: ...

class DeviceStats:
    """Calls to a device and the seconds they cost."""

    @property
    def malloc_calls(self) -> int: ...

    @property
    def free_calls(self) -> int: ...

    @property
    def map_calls(self) -> int: ...

    @property
    def unmap_calls(self) -> int: ...

    @property
    def refused_calls(self) -> int:
        """mallocs and maps"""

    @property
    def seconds(self) -> float: ...

    @property
    def calls(self) -> int: ...

class Moment:
    """The bytes of an allocator after an event."""

    @property
    def event(self) -> int: ...

    @property
    def requested(self) -> int: ...

    @property
    def allocated(self) -> int: ...

    @property
    def reserved(self) -> int: ...

    @property
    def largest_free(self) -> int: ...

class Option:
    """A named option of a strategy."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def default(self) -> str: ...

    @property
    def help(self) -> str: ...

class StrategyInfo:
    """What a strategy says about itself."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def worst_case(self) -> str: ...

    @property
    def reference(self) -> str: ...

    @property
    def options(self) -> list[Option]: ...

    @property
    def candidate(self) -> bool:
        """may be recommended"""

    @property
    def keeps_free_blocks(self) -> bool: ...

    @property
    def exemption(self) -> str:
        """why largest_request is below the capacity"""

    @property
    def by_stream(self) -> bool:
        """a freed block serves requests of its own stream alone"""

    @property
    def from_pool(self) -> bool:
        """needs a device that has pools of its own"""

    def largest_request(self, capacity: int) -> int:
        """
        The largest request that an empty device of `capacity` bytes must serve.
        """

class Device:
    """Where an allocator gets its segments."""

    @property
    def capacity(self) -> int:
        """bytes"""

    @property
    def reserved(self) -> int:
        """bytes in segments and pages held"""

    @property
    def simulated(self) -> bool: ...

    @property
    def cost_source(self) -> str:
        """what stands behind the seconds"""

    @property
    def has_pools(self) -> bool: ...

    def close(self) -> None:
        """
        Takes back everything, and refuses all requests from then on. Raises DeviceError when something cannot be given back.
        """

    def stats(self) -> DeviceStats: ...

class CudaDevice(Device):
    def __init__(self, ordinal: int = 0, limit: int | None = None) -> None: ...

    @property
    def ordinal(self) -> int: ...

    @property
    def name(self) -> str:
        """of the GPU"""

    @property
    def driver_version(self) -> int:
        """12040 for CUDA 12.4"""

    @property
    def free_bytes(self) -> int:
        """Of the whole GPU, all processes counted. Raises DeviceError."""

    def synchronize(self) -> None:
        """Waits for all work on the GPU."""

def measure_calls(device: Device, size: int, repeats: int) -> dict[str, list[float]]:
    """
    Seconds of each call to a device, made `repeats` times with one size in bytes.
    """

def cuda_devices() -> int:
    """
    How many GPUs the driver has. Raises SpecError when there is no driver.
    """

class SimulatedDevice(Device):
    def __init__(self, capacity: int, *, alignment: int = 2097152, source: str = 'none', malloc: Sequence[tuple[float, float]] = [], free: Sequence[tuple[float, float]] = [], map: Sequence[tuple[float, float]] = [], unmap: Sequence[tuple[float, float]] = [], fail_call: int = 0, fail_above: int | None = None, fail_rate: float = 0.0, seed: int = 0) -> None: ...

class Allocator:
    """A strategy at work on a device. Safe to share by threads."""

    def allocate(self, size: int, stream: int = 0) -> int:
        """
        The address of a block of at least `size` bytes; 0 for 0 bytes. Raises OutOfMemory.
        """

    def deallocate(self, address: int, stream: int = 0) -> None:
        """
        Frees a block. Raises BadFree, and changes nothing, for any other address but 0.
        """

    def trim(self) -> None:
        """Gives wholly free segments back to the device."""

    def reset_peaks(self) -> None:
        """Peaks of the statistics begin again from now."""

    def step(self) -> None:
        """A training or inference step begins."""

    def snapshot(self) -> list[Segment]:
        """The segments, in order of address."""

    def check(self) -> None:
        """Raises InvariantViolation naming the broken rule."""

    def largest_free(self) -> int:
        """bytes of the largest free block"""

    def stats(self) -> Stats: ...

    def counters(self) -> dict[str, int]:
        """What this strategy counts beside the common statistics."""

    @property
    def device(self) -> Device: ...

    @property
    def info(self) -> StrategyInfo: ...

def strategies() -> list[StrategyInfo]: ...

def strategy(name: str) -> StrategyInfo: ...

def unavailable(info: StrategyInfo, device: Device) -> str:
    """Why a strategy cannot work on a device; empty when it can."""

def make(layers: Sequence[tuple[str, Mapping[str, str]]], device: Device) -> Allocator: ...

def parse_bytes(text: str) -> int | None: ...

def human_bytes(size: int) -> str: ...

class WrapperInfo:
    """What a wrapper says about itself."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def options(self) -> list[Option]: ...

class Live:
    """A live block, as `check` knows it."""

    @property
    def block(self) -> Block: ...

    @property
    def stream(self) -> int: ...

    @property
    def request(self) -> int:
        """how many requests came before its own"""

    @property
    def step(self) -> int:
        """how many steps had begun"""

def wrappers() -> list[WrapperInfo]: ...

def live(allocator: Allocator) -> list[Live]:
    """
    The live blocks, in order of request. Raises SpecError without `check`.
    """

def recording(allocator: Allocator) -> dict[str, Any]:
    """The events so far, as columns. Raises SpecError without `record`."""

class TraceArrays:
    """The arrays of a trace, one element for each event."""

    def __init__(self, op: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], block: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], stream: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], step_label: int) -> None: ...

class Measurement:
    @property
    def max_load(self) -> int: ...

    @property
    def peak(self) -> Moment: ...

    @property
    def stats(self) -> Stats: ...

    @property
    def device(self) -> DeviceStats: ...

    @property
    def counters(self) -> dict[str, int]: ...

    @property
    def internal_fragmentation_mean(self) -> float: ...

    @property
    def external_fragmentation_mean(self) -> float: ...

    @property
    def timeline(self) -> dict[str, Any]: ...

    @property
    def detail(self) -> dict[str, dict[str, Any]] | None: ...

def measure(trace: TraceArrays, allocator: Allocator, samples: int, placements: Callable[[dict[str, Any]], None] | None, keep: bool, detail: bool) -> Measurement: ...

def time_pass(trace: TraceArrays, allocator: Allocator) -> float: ...

def time_each(trace: TraceArrays, allocator: Allocator) -> tuple[Annotated[NDArray[numpy.float32], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))], float]: ...

def completes(trace: TraceArrays, allocator: Allocator) -> bool: ...

class Latency:
    """Seconds of many calls; a percentile is at most 1/32 too high."""

    def __init__(self) -> None: ...

    def add(self, ticks: int) -> None:
        """One call of so many ticks of the processor's clock."""

    @property
    def count(self) -> int: ...

    @property
    def mean(self) -> float: ...

    @property
    def max(self) -> float: ...

    def percentile(self, share: float) -> float:
        """Seconds; the share is from 0 to 1."""

class Seen:
    """What a program saw of its memory on a GPU."""

    @property
    def alloc(self) -> Latency: ...

    @property
    def free(self) -> Latency: ...

    @property
    def failures(self) -> int:
        """requests that failed for good"""

    @property
    def retries(self) -> int: ...

    @property
    def waiting(self) -> int:
        """blocks freed, but used on a stream"""

    @property
    def deferred(self) -> int:
        """frees that had to wait for a stream"""

    @property
    def gpu_free_at_start(self) -> int: ...

    @property
    def gpu_free_least(self) -> int: ...

class ProgramMemory:
    """The memory of a running program on one GPU."""

    def allocate(self, size: int, stream: int = 0) -> int:
        """
        The address of a block for a CUDA stream, by its handle. Raises OutOfMemory.
        """

    def deallocate(self, address: int) -> None: ...

    def use_on(self, address: int, stream: int) -> None:
        """The block is used on another stream than its own."""

    def begin_capture(self, pool: tuple[int, int], streams: Sequence[int]) -> None:
        """
        Requests of these streams are served apart, for a graph that is captured.
        """

    def end_capture(self, pool: tuple[int, int]) -> None: ...

    def release(self, pool: tuple[int, int]) -> None:
        """The graph is gone."""

    def trim(self) -> None: ...

    def step(self) -> None: ...

    def reset_peaks(self) -> None: ...

    def close(self) -> None:
        """All goes back; later requests fail."""

    def seen(self) -> Seen: ...

    @property
    def device(self) -> CudaDevice: ...

    @property
    def allocator(self) -> Allocator: ...

class Program:
    """A running program whose memory comes from an allocator."""

    @staticmethod
    def start(layers: Sequence[tuple[str, Mapping[str, str]]], limit: int | None = None, poison: bool = False) -> Program: ...

    def on(self, ordinal: int) -> ProgramMemory:
        """The memory on a GPU, made when it is first asked for."""

    def memories(self) -> list[ProgramMemory]:
        """The memory on each GPU that was used."""

    @property
    def address(self) -> int: ...

def serve_torch(program: Program | None) -> None:
    """PyTorch's entry points are this program's from now on."""

def last_failure() -> str:
    """Why the last request of this thread through CuPy's entry point failed."""

def entry_point(name: str) -> int:
    """The address of a C function for PyTorch or CuPy."""

class ArenaAlloc:
    """A block placed in an arena."""

    @property
    def offset(self) -> int: ...

    @property
    def size(self) -> int: ...

class SimpleMemoryArena:
    """TFLite's arena: offsets first, one segment at commit."""

    def __init__(self, device: Device, alignment: int = 64) -> None: ...

    def allocate(self, alignment: int, size: int) -> ArenaAlloc: ...

    def deallocate(self, block: ArenaAlloc) -> None: ...

    def commit(self) -> None: ...

    def resolve(self, block: ArenaAlloc) -> int: ...

    def clear(self) -> None: ...

    @property
    def high_water_mark(self) -> int: ...

    @property
    def committed_size(self) -> int: ...

class Placement(enum.Enum):
    ARENA = 0

    PERSISTENT = 1

    DYNAMIC = 2

    NONE = 3

class Tensor:
    def __init__(self, bytes: int, placement: Placement = Placement.ARENA) -> None: ...

    @property
    def bytes(self) -> int: ...

    @property
    def placement(self) -> Placement: ...

class Operator:
    def __init__(self, inputs: Sequence[int], outputs: Sequence[int], temporaries: Sequence[int] = [], name: str = '') -> None: ...

class Graph:
    """Operators in execution order; tensors are named by index."""

    def __init__(self, tensors: Sequence[Tensor], operators: Sequence[Operator], inputs: Sequence[int], outputs: Sequence[int], variables: Sequence[int] = []) -> None: ...

class GraphPlan:
    """Offsets for the tensors of a graph. Sizes in bytes."""

    @property
    def offsets(self) -> list[int | None]:
        """of each tensor in its arena; None: in no arena"""

    @property
    def owners(self) -> list[int]:
        """
        of each tensor, the one whose memory it lies in: itself, unless it is in place
        """

    @property
    def arena_size(self) -> int: ...

    @property
    def persistent_arena_size(self) -> int: ...

    @property
    def lower_bound(self) -> int:
        """of the arena's size"""

def plan_graph(graph: Graph, planner: str, preserve_inputs: bool, preserve_intermediates: bool, alignment: int, time_limit: float, report: Callable[[float, int, int], None] | None) -> GraphPlan: ...

class ArenaPlanner:
    """TFLite's planner of 2018, over two arenas."""

    def __init__(self, device: Device, graph: Graph, preserve_inputs: bool = False, preserve_intermediates: bool = False, alignment: int = 64) -> None: ...

    def execute(self, first: int, last: int) -> None: ...

    def set_bytes(self, tensor: int, size: int) -> None: ...

    def offset(self, tensor: int) -> int | None: ...

    def address(self, tensor: int) -> int: ...

    @property
    def arena_size(self) -> int: ...

    @property
    def persistent_arena_size(self) -> int: ...

class PlannerInfo:
    """What a planner says about itself."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def reference(self) -> str: ...

def planners() -> list[PlannerInfo]: ...

def plan(planner: str, size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], first: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], last: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], alignment: int, time_limit: float, report: Callable[[float, int, int], None] | None) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,))], int, int, int]:
    """Offsets, height, max load and lower bound."""
