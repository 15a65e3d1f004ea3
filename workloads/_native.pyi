"""Native parts of the importers."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import numpy
import numpy.typing
from numpy.typing import NDArray


class PickleError(ValueError):
    pass

class Rows:
    """Rows of a table, in place of the dicts of a list, or of one dict."""

    @property
    def table(self) -> str: ...

    @property
    def number(self) -> numpy.typing.NDArray[numpy.uint32]: ...

class Pickle:
    """What a pickle holds: `data`, and tables of certain dicts."""

    @property
    def data(self) -> Any: ...

    def column(self, table: str, field: int, end: bool = False) -> numpy.typing.NDArray[Any]:
        """
        A column of a table, by the number of its field. end: of rows, the one after the last.
        """

    def text(self, number: int) -> str: ...

    def pair(self, number: int) -> tuple[int, int]: ...

    def stack(self, number: int) -> list[int]:
        """The rows of the frames of a call stack, innermost first."""

def read_pickle(forms: list[tuple[str, list[str], list[Any]]], size: int, read: Callable[[int], bytes], old_text: Callable[[bytes, bytes], bytes | None]) -> Pickle:
    """
    Reads a pickle. forms: the name of each table, the keys that a dict needs to be a row, and its fields; the first table has frames. size: bytes of the file. read: the next bytes, at most as many as given. old_text: UTF-8 of the line of an opcode S or V, None for a broken one. Raises PickleError.
    """

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

class PytorchRules:
    """What a version of PyTorch's allocator does."""

    def __init__(self) -> None:
        """Those that hold if no version is given."""

    @staticmethod
    def of(version: str) -> PytorchRules | None:
        """
        Those of a version such as 2.9.1+cu128, or of the newest known one for later versions; None for versions before 2.1 and for other texts.
        """

    @staticmethod
    def sets() -> list[PytorchRules]:
        """
        Those that differ, the oldest first: of the default version, or of the newest one with the same rules.
        """

    @property
    def version(self) -> str:
        """for example 2.9"""

    @property
    def since(self) -> str:
        """the oldest version with these rules"""

    @property
    def is_default(self) -> bool:
        """whether those of the default version are the same"""

    @property
    def variable(self) -> str:
        """where PyTorch reads its settings"""

    @property
    def lasting(self) -> dict[str, str]:
        """
        The settings that stay when a program has PyTorch read others that do not name them, and the values that restore their defaults; "" where there is none.
        """

    @property
    def allocates_from_pools(self) -> bool:
        """
        whether a MemPool's own allocator is used with expandable_segments, too
        """

    @property
    def names_pools(self) -> bool:
        """whether each event of a memory snapshot has the pool of its block"""

class PytorchSettings:
    """Settings of PyTorch's allocator."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """
        Those of options of `caching`. Raises ValueError for a value that is out of range.
        """

    def rounded(self, requested: int) -> int:
        """
        Bytes allocated to a request, without the rest of a block that is not split.
        """

    @property
    def large_segment(self) -> int:
        """
        bytes of a segment for requests below 10 MiB, or of an expandable page for all
        """

    @property
    def max_split(self) -> int | None:
        """bytes; None: no limit"""

    @property
    def collection_threshold(self) -> float:
        """0: never"""

    @property
    def expandable(self) -> bool:
        """whether new segments are expandable"""

    @property
    def divisions(self) -> list[int]:
        """
        steps between powers of two, by the power of two of a size in MiB; 0: none
        """

SMALL_REQUEST: int = 1048576

SMALL_SEGMENT: int = 2097152

WITHOUT_POOLS: str = '2.11'

WITHOUT_SETTINGS: str = '2.3'

def split_conf(conf: str) -> list[tuple[str, str]]:
    """
    The settings in a value of PYTORCH_ALLOC_CONF, as it writes them, in order; for an item without a colon, the item and an empty value.
    """
