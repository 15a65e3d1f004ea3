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
    """
    Part of a segment. `requested` is 0 in a free block. All sizes are in bytes.
    """

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def requested(self) -> int: ...

    @property
    def allocated(self) -> bool: ...

class Segment:
    """A range obtained from the device, tiled by its blocks."""

    @property
    def address(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def blocks(self) -> list[Block]: ...

class Stats:
    """Current and peak bytes, and counts of calls."""

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
    def allocations(self) -> int:
        """requests served"""

    @property
    def frees(self) -> int: ...

    @property
    def failures(self) -> int:
        """requests refused"""

    @property
    def retries(self) -> int:
        """requests that first returned cached memory to the device"""

class DeviceStats:
    """Counts of calls to a device, and their cost in seconds."""

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
    def calls_at_points(self) -> list[float]:
        """
        How many calls each point of the cost curves of a simulated device counts for: malloc, free, map, unmap. A call between two points counts for both in part.
        """

    @property
    def calls(self) -> int: ...

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
    """Description of a strategy."""

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
    def by_pool(self) -> bool:
        """knows private pools; otherwise each has an instance of its own"""

    @property
    def from_driver_pool(self) -> bool:
        """needs a device whose driver has memory pools"""

    def largest_request(self, capacity: int) -> int:
        """
        The largest request that an empty device of `capacity` bytes must serve.
        """

class Device:
    """The source of an allocator's segments. Sizes are in bytes."""

    @property
    def capacity(self) -> int:
        """bytes"""

    @property
    def same_answers(self) -> tuple[int, int]:
        """
        from which capacity to below which one everything asked so far has the same answers
        """

    @property
    def reserved(self) -> int:
        """bytes in segments, mapped pages and pools"""

    @property
    def simulated(self) -> bool: ...

    @property
    def cost_source(self) -> str:
        """the origin of the costs in seconds"""

    @property
    def has_driver_pools(self) -> bool:
        """has stream-ordered memory pools of the driver"""

    def close(self) -> None:
        """
        Frees everything that allocators hold and refuses all later requests. Raises DeviceError if anything cannot be freed.
        """

    def stats(self) -> DeviceStats: ...

class CudaDevice(Device):
    """The memory of an NVIDIA GPU."""

    def __init__(self, ordinal: int = 0, limit: int | None = None) -> None:
        """`limit`: the most bytes to reserve. Raises SpecError or DeviceError."""

    @property
    def ordinal(self) -> int: ...

    @property
    def name(self) -> str:
        """of the GPU"""

    @property
    def total(self) -> int:
        """bytes of the GPU"""

    @property
    def uuid(self) -> str:
        """of the GPU, as printed by nvidia-smi"""

    @property
    def driver_version(self) -> int:
        """12040 for CUDA 12.4"""

    @property
    def free_bytes(self) -> int:
        """
        Free bytes of the whole GPU, with the memory of all processes counted. Raises DeviceError.
        """

    def synchronize(self) -> None:
        """Waits until all work on the GPU has finished."""

def measure_calls(device: Device, size: int, repeats: int) -> dict[str, list[float]]:
    """
    Makes each device call `repeats` times with `size` bytes. Returns the seconds of each call, by the name of the call.
    """

def cuda_devices() -> int:
    """
    The number of GPUs that the driver reports. Raises SpecError if there is no driver.
    """

class SimulatedDevice(Device):
    """A GPU's memory as a model: capacity, addresses and costs."""

    def __init__(self, capacity: int, *, alignment: int = 2097152, up: bool = False, source: str = 'none', malloc: Sequence[tuple[float, float]] = [], free: Sequence[tuple[float, float]] = [], map: Sequence[tuple[float, float]] = [], unmap: Sequence[tuple[float, float]] = [], pool_malloc: Sequence[tuple[float, float]] = [], pool_free: Sequence[tuple[float, float]] = [], pool_grow: Sequence[tuple[float, float]] = [], pool_shrink: Sequence[tuple[float, float]] = [], fail_call: int = 0, fail_above: int | None = None, fail_rate: float = 0.0, seed: int = 0, page: int = 0) -> None:
        """
        Sizes are in bytes. `malloc` to `pool_shrink`: points (bytes, seconds) of the cost of each call, and of each page that a pool grows or shrinks by. `fail_*`: which mallocs and maps to refuse. `page`: the page size of segments; 0: they are not rounded. Raises SpecError.
        """

class RecordedDevice(SimulatedDevice):
    """A simulated device that repeats the answers of a recorded device."""

    def __init__(self, capacity: int, kind: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], address: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        `kind`, `address`, `size`: the successful calls of the recording, in order. A kind is 0 for malloc, 1 for free, 2 for map and 3 for unmap.
        """

class Allocator:
    """A strategy running on a device. Thread-safe."""

    def allocate(self, size: int, stream: int = 0, pool: int = 0) -> int:
        """
        Returns the address of a block of at least `size` bytes; 0 for 0 bytes. Raises OutOfMemory.
        """

    def deallocate(self, address: int, stream: int = 0, pool: int = 0) -> None:
        """
        Frees a block of a private pool, or of none (0). Address 0 is ignored. Raises BadFree, and changes nothing, for any other address.
        """

    def trim(self, pool: int = 0) -> None:
        """
        Gives wholly free segments back to the device: those outside of private pools and of released ones, or those of one pool, if it is released.
        """

    def pool_event(self, op: int, pool: int) -> None:
        """
        Creates, enters, leaves or releases a private pool, or begins or ends a capture into it. Raises ValueError for any other op.
        """

    def change_settings(self, conf: str) -> None:
        """
        Changes settings as torch.cuda.memory._set_allocator_settings(conf) does. Raises SpecError, and changes nothing, if it cannot.
        """

    def change_memory_fraction(self, fraction: float) -> None:
        """
        Changes the limit as torch.cuda.memory.set_per_process_memory_fraction does. Raises SpecError, and changes nothing, if it cannot.
        """

    def reset_peaks(self) -> None:
        """Sets the peak statistics to the current values."""

    def step(self) -> None:
        """Marks the start of a training or inference step."""

    def snapshot(self) -> list[Segment]:
        """The segments, in order of address."""

    def check(self) -> None:
        """Raises InvariantViolation with the rule that is broken."""

    def largest_free(self) -> int:
        """Size of the largest free block in bytes."""

    def stats(self) -> Stats: ...

    def counters(self) -> dict[str, int]:
        """Counters of this strategy, in addition to the common statistics."""

    @property
    def device(self) -> Device: ...

    @property
    def info(self) -> StrategyInfo: ...

def strategies() -> list[StrategyInfo]:
    """All strategies, sorted by name."""

def strategy(name: str) -> StrategyInfo:
    """The strategy with a name. Raises SpecError."""

def unavailable(info: StrategyInfo, device: Device) -> str:
    """The reason why a strategy cannot run on a device; empty if it can."""

def make(layers: Sequence[tuple[str, Mapping[str, str]]], device: Device) -> Allocator:
    """
    Creates an allocator. `layers`: (name, options) of the wrappers, outermost first, and of the strategy. Raises SpecError.
    """

def parse_bytes(text: str) -> int | None:
    """
    The number of bytes in a text such as '1.5 MiB'; None for any other text.
    """

def human_bytes(size: int) -> str:
    """For example '1.50 GiB (1610612736 bytes)'."""

class SegmentSource:
    """Where an allocator of your own gets its segments."""

    def malloc(self, size: int) -> int:
        """A segment of `size` bytes: its address, or 0 if the device refuses."""

    def free(self, segment: int) -> None:
        """Gives a segment back. Raises BadFree for any other address."""

    @property
    def free_bytes(self) -> int:
        """The bytes that the device still has."""

    @property
    def capacity(self) -> int:
        """The bytes of the device."""

def find_classes_with(finder: Callable[[str], object]) -> None:
    """`finder(name)` returns the class for the option `class` of `external`."""

class WrapperInfo:
    """Description of a wrapper."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def options(self) -> list[Option]: ...

class Live:
    """A live block, as recorded by the `check` wrapper."""

    @property
    def block(self) -> Block: ...

    @property
    def stream(self) -> int: ...

    @property
    def request(self) -> int:
        """number of requests before this one"""

    @property
    def step(self) -> int:
        """number of steps begun before this request"""

def wrappers() -> list[WrapperInfo]:
    """All wrappers, sorted by name."""

def live(allocator: Allocator) -> list[Live]:
    """
    The live blocks, in the order of their requests. Raises SpecError without a `check` wrapper.
    """

def recording(allocator: Allocator) -> dict[str, Any]:
    """
    The events so far, as columns. Raises SpecError without a `record` wrapper.
    """

class Moment:
    """The state of an allocator after an event, in bytes."""

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

class PartArrays:
    """Consecutive events of a trace: arrays with one element per event."""

    def __init__(self, op: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], block: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], stream: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], pool: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)], id: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class TraceStart:
    """What a trace has before its first event."""

    def __init__(self, layout: Sequence[HeldSegment], pools: Sequence[PoolTraits]) -> None: ...

class TraceParts:
    """
    A trace. `parts`: an iterable of PartArrays, each with an element or more, `events` elements in all.
    """

    def __init__(self, events: int, parts: object, step_label: int, start: TraceStart, changes: Sequence[Change]) -> None: ...

class Change:
    """What a program calls before an event of its trace."""

    def __init__(self, event: int, trim: bool, settings: str | None, memory_fraction: float | None) -> None: ...

class PoolTraits:
    """What a program chose when it made a private pool."""

    def __init__(self, use_on_oom: bool, no_split: bool, rank: int) -> None: ...

class HeldSegment:
    """A segment that a program held before its trace."""

    def __init__(self, address: int, size: int, stream: int, small: bool, reservation: int, rank: int, of_bfc: bool, pool: int, blocks: Sequence[tuple[int, int, int]]) -> None:
        """
        `blocks`: (address, size, requested) of those allocated, in order of address.
        """

class Measurement:
    """The results of a replay. Sizes are in bytes."""

    @property
    def max_load(self) -> int:
        """peak of the requested bytes of the blocks alive in the trace"""

    @property
    def peak(self) -> Moment:
        """the event at which reserved bytes first reached their maximum"""

    @property
    def stats(self) -> Stats:
        """after the last event"""

    @property
    def device(self) -> DeviceStats:
        """after the last event"""

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

def measure(trace: TraceParts, allocator: Allocator, samples: int, placements: Callable[[dict[str, Any]], None] | None, keep: bool, detail: bool) -> Measurement:
    """
    Replays a trace. `samples`: approximate length of the timeline. `placements` is called with batches of columns. With `keep`, live blocks are not freed at the end. Raises ValueError for an invalid trace.
    """

def time_pass(trace: TraceParts, allocator: Allocator) -> float:
    """Seconds per event of one replay of the whole trace."""

def time_each(trace: TraceParts, allocator: Allocator, seen: Callable[[Annotated[NDArray[numpy.float32], dict(shape=(None,))], Annotated[NDArray[numpy.float32], dict(shape=(None,))]], None]) -> float:
    """
    Calls `seen` for each part with the seconds of each alloc and of each free, without the cost of reading the timer. Returns that cost.
    """

def failing_event(trace: TraceParts, allocator: Allocator) -> int | None:
    """The first event whose request fails, or None. The replay stops there."""

class Latency:
    """The durations of many calls. Percentiles are at most 1/32 too high."""

    def __init__(self) -> None: ...

    def add(self, ticks: int) -> None:
        """Adds a call that took `ticks` of the processor's time stamp counter."""

    @property
    def count(self) -> int: ...

    @property
    def mean(self) -> float:
        """seconds"""

    @property
    def max(self) -> float:
        """seconds"""

    def percentile(self, share: float) -> float:
        """The seconds that a share (0 to 1) of the calls does not exceed."""

class Flow:
    """A number of bytes or blocks over time."""

    @property
    def current(self) -> int: ...

    @property
    def peak(self) -> int: ...

    @property
    def gained(self) -> int:
        """sum of all increases since the last reset"""

    @property
    def lost(self) -> int:
        """sum of all decreases since the last reset"""

class Totals:
    """Sums over all blocks, including those of captured graphs."""

    @property
    def requested(self) -> Flow: ...

    @property
    def allocated(self) -> Flow: ...

    @property
    def active(self) -> Flow:
        """allocated, or freed but still in use"""

    @property
    def reserved(self) -> Flow: ...

    @property
    def graphs(self) -> Flow:
        """reserved for captured graphs"""

    @property
    def allocated_blocks(self) -> Flow: ...

    @property
    def active_blocks(self) -> Flow: ...

class ProgramStats:
    """Statistics of a program's calls on one GPU."""

    @property
    def totals(self) -> Totals: ...

    @property
    def alloc(self) -> Latency: ...

    @property
    def free(self) -> Latency: ...

    @property
    def failures(self) -> int:
        """requests that failed after all retries"""

    @property
    def retries(self) -> int:
        """retries after waiting for events or trimming memory of graphs"""

    @property
    def waiting(self) -> int:
        """freed blocks still in use on a stream"""

    @property
    def deferred(self) -> int:
        """frees that had to wait for a stream"""

    @property
    def gpu_free_at_start(self) -> int:
        """free bytes of the GPU, with the memory of all processes counted"""

    @property
    def gpu_free_least(self) -> int:
        """the lowest value at a new peak of reserved bytes"""

class ProgramMemory:
    """The memory of a running program on one GPU. Sizes are in bytes."""

    def allocate(self, size: int, stream: int = 0) -> int:
        """
        Returns the address of a block for a CUDA stream handle. Raises OutOfMemory.
        """

    def deallocate(self, address: int) -> None:
        """
        Frees a block. Raises BadFree unless the address is an allocated block.
        """

    def use_on(self, address: int, stream: int) -> None:
        """Records that the block is used on a stream other than its own."""

    def begin_capture(self, pool: tuple[int, int], streams: Sequence[int]) -> None:
        """
        Starts a graph capture: requests on these streams get memory that belongs to the graph.
        """

    def end_capture(self, pool: tuple[int, int]) -> None: ...

    def release(self, pool: tuple[int, int]) -> None:
        """Releases the graph's memory once its blocks are freed."""

    def trim(self) -> None:
        """Returns free memory to the GPU."""

    def step(self) -> None:
        """Marks the start of a training or inference step."""

    def reset_peaks(self) -> None:
        """Sets the peak statistics to the current values."""

    def reset_counts(self) -> None:
        """Sets `gained` and `lost` of all totals to 0."""

    def close(self) -> None:
        """
        Returns all memory to the GPU, including live blocks. Later requests fail.
        """

    def stats(self) -> ProgramStats:
        """The statistics of the program's calls."""

    @property
    def device(self) -> CudaDevice: ...

    @property
    def allocator(self) -> Allocator: ...

class Program:
    """A running program that gets its memory from an allocator."""

    @staticmethod
    def start(layers: Sequence[tuple[str, Mapping[str, str]]], limit: int | None = None, poison: bool = False) -> Program:
        """
        `layers`: (name, options) of the wrappers, outermost first, and of the strategy. `limit`: bytes on each GPU. `poison`: fill freed memory with 0xFF. Raises SpecError.
        """

    def on(self, ordinal: int) -> ProgramMemory:
        """
        The memory on a GPU, created on first use. Raises SpecError or DeviceError.
        """

    def memories(self) -> list[ProgramMemory]:
        """The memory on each GPU used so far."""

    @property
    def address(self) -> int: ...

def serve_torch(program: Program | None) -> None:
    """Routes PyTorch's allocations to this program from now on."""

def last_failure() -> str:
    """
    The reason why the last failed request of this thread through CuPy's entry point failed.
    """

def entry_point(name: str) -> int:
    """The address of a C function for PyTorch or CuPy. Raises SpecError."""

class ArenaAlloc:
    """A block placed in an arena."""

    @property
    def offset(self) -> int: ...

    @property
    def size(self) -> int: ...

class SimpleMemoryArena:
    """
    TFLite's arena: assigns offsets first and obtains one segment at commit.
    """

    def __init__(self, device: Device, alignment: int = 64) -> None: ...

    def allocate(self, alignment: int, size: int) -> ArenaAlloc: ...

    def deallocate(self, block: ArenaAlloc) -> None:
        """Raises BadFree."""

    def commit(self) -> None:
        """Obtains a segment as large as the high-water mark. Raises OutOfMemory."""

    def resolve(self, block: ArenaAlloc) -> int:
        """The address of a block. Raises SpecError before `commit`."""

    def clear(self) -> None:
        """Removes all blocks but keeps the segment."""

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
    """Operators in execution order. Tensors are identified by index."""

    def __init__(self, tensors: Sequence[Tensor], operators: Sequence[Operator], inputs: Sequence[int], outputs: Sequence[int], variables: Sequence[int] = []) -> None: ...

class GraphPlan:
    """Offsets of the tensors of a graph. Sizes are in bytes."""

    @property
    def offsets(self) -> list[int | None]:
        """offset of each tensor in its arena; None if it has none"""

    @property
    def owners(self) -> list[int]:
        """
        the tensor whose memory each tensor uses: itself unless it is computed in place
        """

    @property
    def arena_size(self) -> int: ...

    @property
    def persistent_arena_size(self) -> int: ...

    @property
    def lower_bound(self) -> int:
        """lower bound of arena_size"""

def plan_graph(graph: Graph, planner: str, preserve_inputs: bool, preserve_intermediates: bool, alignment: int, time_limit: float, report: Callable[[float, int, int], None] | None) -> GraphPlan:
    """Plans the arenas of a graph. Raises SpecError."""

class ArenaPlanner:
    """TFLite's ArenaPlanner of 2018, with two arenas."""

    def __init__(self, device: Device, graph: Graph, preserve_inputs: bool = False, preserve_intermediates: bool = False, alignment: int = 64) -> None: ...

    def execute(self, first: int, last: int) -> None:
        """
        Places the tensors of these operators. Raises SpecError or OutOfMemory.
        """

    def set_bytes(self, tensor: int, size: int) -> None:
        """Sets the size of a tensor that is not placed yet. Raises SpecError."""

    def offset(self, tensor: int) -> int | None:
        """None if the tensor has not been placed in an arena."""

    def address(self, tensor: int) -> int:
        """0 if the tensor has not been placed in an arena."""

    @property
    def arena_size(self) -> int: ...

    @property
    def persistent_arena_size(self) -> int: ...

class PlannerInfo:
    """Description of a planner."""

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def reference(self) -> str: ...

def planners() -> list[PlannerInfo]: ...

def plan(planner: str, size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], first: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], last: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], alignment: int, time_limit: float, report: Callable[[float, int, int], None] | None, clock: Callable[[], float] | None = None) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,))], int, int, int]:
    """
    Returns the offsets, the height, the maximum load and a lower bound, in bytes. A block is alive from `first` up to but not including `last`. `time_limit`: seconds. `report` is called with the seconds, the height and the lower bound. `clock` returns seconds and replaces the clock of the time limit. Raises SpecError.
    """
