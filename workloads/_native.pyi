"""Native parts of the importers."""

from collections.abc import Callable, Sequence
from typing import Annotated, Final

import numpy
from numpy.typing import NDArray


class EventRun:
    """
    Events in order: one element of each column per event. `end`: where in the data the scanner stopped.
    """

    @property
    def end(self) -> int: ...

    def __len__(self) -> int: ...

    @property
    def action(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]: ...

    @property
    def address(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def size(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def stream(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def time(self) -> Annotated[NDArray[numpy.int64], dict(shape=(None,))]: ...

    @property
    def pool(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,))]: ...

    @property
    def label(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]: ...

    @property
    def kept(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None,))]:
        """
        what each value is that the events add to the memo: 0 an event, 1 a list of references, 2 a tuple
        """

    @property
    def index(self) -> Annotated[NDArray[numpy.uint32], dict(shape=(None,))]:
        """
        of each of these values: of the event in the run, or for `EventScanner.text`
        """

class EventScanner:
    """Reads the events of a pickled memory snapshot."""

    def __init__(self, keys: Sequence[bytes], place: Sequence[int]) -> None:
        """
        keys: the opcodes of each key. place: the index of the keys of the action, the address, the size, the stream, the time, the frames and the pool, or -1.
        """

    def scan(self, data: bytes, begin: int, left: int, action: Callable[[int], tuple[int, bool]], label: Callable[[bytes], int], label_at: Callable[[int], int], pool: Callable[[bytes], int], pool_at: Callable[[int], int]) -> EventRun:
        """
        The events from a position on, up to the first one of another form. left: how many bytes of the file follow the data. The functions return numbers; an event for which one of them raises an exception ends the run. action: number, and whether there is a label, of the string at a place in the memo. label: of a list of references, given its opcodes. label_at: of the frames at a place in the memo. pool, pool_at: the same for the id of a pool, a tuple.
        """

    def text(self, index: int) -> bytes:
        """The opcodes of a list or a tuple."""

    def forget(self) -> None:
        """Forgets what references mean, after the memo has changed."""

class RmmRows:
    """
    The rows of a log of RMM, one element of each column per row, two for a failed request.
    """

    def __init__(self) -> None: ...

    def read(self, lines: bytes) -> bool:
        """
        Adds whole lines. Returns False if RMM does not write one of them like this.
        """

    @property
    def failures(self) -> int:
        """failed requests"""

    NOWHERE: Final[int] = ...
    """address of a failed request"""

    def take(self) -> tuple[Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))]]:
        """
        The columns is_alloc (0 or 1), address, size (bytes), stream and time (nanoseconds since midnight), once.
        """

class Pairs:
    """Which events belong together; events are indices."""

    @property
    def requests_for_nothing(self) -> int: ...

    @property
    def stray_frees(self) -> int: ...

    @property
    def search_steps(self) -> int:
        """
        places of the hash table that were visited, beyond the first one of each search
        """

    def take(self) -> tuple[Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.uint8], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.int64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))]]:
        """
        The columns, once. For each event: begin, the event that began its block; from_start, whether it frees a block that was alive before all events; left_out, whether it is a request for no bytes or a free of no block. Then: unfreed, the allocs at the address of a block that is alive; still_alive, the alloc of that block for each of them; addresses, all of them once, in any order.
        """

def pair_events(is_alloc: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], address: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Pairs:
    """
    Which of the events that name blocks by address belong together. Raises ValueError if the arrays differ in length.
    """

class BlockNumbers:
    """
    Gives the live blocks of a trace numbers that are used again after a free, so that all are below the largest number of live blocks.
    """

    def __init__(self) -> None: ...

    def number(self, op: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], block: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[Annotated[NDArray[numpy.uint32], dict(shape=(None,))], int]:
        """
        The next events: the number of the block of each alloc and free, `block` of any other event; and the index of the first event that allocates a live block or frees one that is not, from which on there are no numbers, or the number of events.
        """

class TraceScan:
    """
    What the features of a valid trace need. Blocks have numbers below `most_blocks`; others raise ValueError.
    """

    def __init__(self, step_label: int, most_blocks: int) -> None: ...

    def add(self, op: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], block: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], stream: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Adds the next events."""

    def finish(self) -> None:
        """Call it once, after the last event."""

    @property
    def events(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def streams(self) -> int: ...

    @property
    def live_peak(self) -> int: ...

    @property
    def live_sum(self) -> int:
        """of the live blocks after each event"""

    @property
    def load_max(self) -> int: ...

    @property
    def load_max_at(self) -> int:
        """the first event with the maximum"""

    @property
    def load_sum(self) -> int:
        """of the live bytes after each event"""

    def sizes(self) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))]]:
        """
        The distinct sizes of the allocs, ascending, and how many allocs have each.
        """

    def lifetimes(self) -> tuple[Annotated[NDArray[numpy.uint64], dict(shape=(None,))], Annotated[NDArray[numpy.uint64], dict(shape=(None,))]]:
        """The distinct lifetimes, ascending, and how many blocks have each."""

    @property
    def repeated(self) -> int:
        """
        The sum of |S_k intersected with S_(k-1)|, where S_k is the multiset of the sizes requested in step k.
        """

    @property
    def compared(self) -> int:
        """The sum of max(|S_k|, |S_(k-1)|)."""

class HighLoad:
    """
    Counts the events of a valid trace after which the live bytes are at least a threshold.
    """

    def __init__(self, threshold: float, most_blocks: int) -> None: ...

    def add(self, op: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], block: Annotated[NDArray[numpy.uint32], dict(shape=(None,), order='C', device='cpu', writable=False)], size: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], stream: Annotated[NDArray[numpy.uint16], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Adds the next events."""

    @property
    def count(self) -> int: ...
