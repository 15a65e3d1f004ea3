# SPDX-License-Identifier: Apache-2.0
"""The reports: what they describe, the sequence, the settings, and the numbers that follow."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from allocbench import allocators
from allocbench.replays.runner import fresh
from allocbench.workloads import Trace
from allocbench.workloads.events import Events
from allocbench.workloads.vocabulary import Provenance
from benchmarks.workshop.court import sequences as of
from benchmarks.workshop.court import xnnpack
from benchmarks.workshop.court.sequences import GIB, KIB, MIB

SINCE_2_1 = "PyTorch 2.1 to 2.15"
REPRODUCED, REFUTED = "reproduced", "not reproduced"


@dataclass(frozen=True)
class Case:
    """A report. reserved, cured: peak reserved bytes with `spec` and `cure`; refused: requests.

    report: its numbers, in our words. reported: those bytes, where it has exact ones, else None.
    versions: which have the problem. cure: a spec under which it is gone; "" if there is none.
    """

    issue: str
    report: str
    cause: str
    versions: str
    events: Callable[..., None]
    spec: str
    device: str
    verdict: str
    reserved: int
    refused: int = 0
    reported: int | None = None
    cure: str = ""
    cured: int = 0
    cured_refused: int = 0

    @property
    def trace(self) -> Trace:
        """The sequence as a trace."""
        events = Events()
        self.events(events)
        return events.trace(Provenance(self.issue, "synthetic", self.link))

    @property
    def link(self) -> str:
        """The address of the report."""
        repository, _, number = self.issue.partition("#")
        return f"https://github.com/{repository}/issues/{number}"

    def measured(self, spec: str) -> tuple[int, int]:
        """Peak reserved bytes and refused requests under a spec."""
        stats = allocators.replay(self.trace, fresh(spec, self.device)).stats
        return stats.peak_reserved, stats.failures


@dataclass(frozen=True)
class PlanCase(Case):
    """A report on a planner, with blocks of (size, first, last); specs name its rule for gaps."""

    blocks: tuple[tuple[int, int, int], ...] = ()

    def measured(self, spec: str) -> tuple[int, int]:
        """The bytes of a plan."""
        return xnnpack.height(self.blocks, uses_leading_gap=spec.endswith("leading gap")), 0


def _mib(*sizes: float) -> tuple[int, ...]:
    return tuple(round(size * MIB) for size in sizes)


# The longest sequence so far in MiB, which is its length times 1,024 sequences of 256 floats.
LONGEST = (
    *((484,), (691,), (805,), (869, 832), (896,), (925,), (1004,), (1008,), (1017,), (1020,)),
    *((1022,), (1023,)),
)
CONTEXTS = (262_144, 393_216, 524_288, 786_432, 1_048_576)  # tokens of 32 KiB
PINNING = (16_515_072, 16_515_072, 11_400_192, 18_191_360, 18_191_360)

CASES = (
    *(
        Case(
            "pytorch/pytorch#193400",
            f"{reported:,} MiB are reserved at cycle {cycle} with max_split_size_mb and "
            f"expandable segments, while {66 + 2 * cycle} MiB stay",
            "A free range above max_split_size_mb is not offered to smaller requests, and a small "
            "block behind it keeps it from being returned",
            SINCE_2_1,
            partial(of.keep_between, cycles=cycle + 1, large=_mib(91, 45.5), small=2 * MIB),
            "caching:max_split_size_mb=128,expandable_segments=true",
            "sim:16GiB",
            REPRODUCED,
            reserved=reported * MIB,
            reported=reported * MIB,
            cure="caching:expandable_segments=true",
            cured=cured * MIB,
        )
        for cycle, reported, cured in ((20, 2_980, 260), (100, 14_060, 420))
    ),
    Case(
        "vllm-project/vllm#41268",
        "Weights of 270 MiB take the cached segments of temporary blocks of 530 MiB; 260 MiB of "
        "each are lost. Said to have begun with PyTorch 2.10",
        "A large cached segment is split for a smaller block, which then holds the whole segment. "
        "2.9 and 2.10 do the same with this sequence",
        SINCE_2_1,
        partial(of.convert, layers=36, temporary=530 * MIB, kept=270 * MIB),
        "caching",
        "sim:80GiB",
        REPRODUCED,
        reserved=36 * 530 * MIB,
        cure="caching:max_split_size_mb=20",
        cured=(530 + 36 * 270) * MIB,
    ),
    Case(
        "pytorch/pytorch#35901",
        "10.84 GiB are refused on a card of 23.65 GiB of which 12.53 GiB are reserved",
        "The segment of the first large block holds small blocks when the block is requested again",
        SINCE_2_1,
        partial(of.again, kept=1730 * MIB, large=11_643_387_904, between=PINNING),
        "caching",
        "sim:23336MiB",
        REPRODUCED,
        reserved=12_834 * MIB,
        refused=1,
        cure="caching:expandable_segments=true",
        cured=12_920 * MIB,
    ),
    Case(
        "meta-pytorch/torchrec#4584",
        "93 GiB are reserved for at most 77 GiB, after blocks were freed and taken back",
        "Free segments are not merged with one another",
        SINCE_2_1,
        partial(of.join, kept=61 * GIB, parts=(8 * GIB, 8 * GIB), whole=16 * GIB),
        "caching",
        "sim:95GiB",
        REPRODUCED,
        reserved=93 * GIB,
        cure="caching:expandable_segments=true",
        cured=78_860 * MIB,
    ),
    Case(
        "meta-pytorch/torchrec#4447",
        "8 GB more are reserved when a block is taken back before its copy to the host has ended",
        "A block that another stream uses is not reusable yet, so a second one is obtained",
        SINCE_2_1,
        partial(of.freed_elsewhere, size=8 * GIB),
        "caching",
        "sim:80GiB",
        REPRODUCED,
        reserved=16 * GIB,
    ),
    Case(
        "pytorch/pytorch#189504",
        "A request is refused although a free block fits",
        "When the device is full, the allocator waits for other streams and asks the device again, "
        "but does not look at the blocks that have become free",
        SINCE_2_1,
        partial(of.part_freed_elsewhere, whole=7 * GIB, part=5 * GIB, rest=GIB),
        "caching",
        "sim:8GiB",
        REPRODUCED,
        reserved=7 * GIB,
        refused=1,
        cure="caching:expandable_segments=true",
        cured=7180 * MIB,
    ),
    Case(
        "pytorch/pytorch#122781",
        "Memory grows by a block for each new longest sequence, to 11,626 MB at 1,023 tokens; the "
        "first line has 506 MB for a block of 484 MiB, so 22 MB are not blocks",
        "A cached block is too small for the next longer sequence, and stays",
        SINCE_2_1,
        partial(of.steps, each=[_mib(*step) for step in LONGEST]),
        "caching",
        "sim:16GiB",
        REPRODUCED,
        reserved=11_602 * MIB,
        cure="caching:expandable_segments=true",
        cured=1720 * MIB,
    ),
    Case(
        "pytorch/pytorch#161139",
        "roundup_power2_divisions:[>:1] does not round 514 MiB up to 1,024 MiB",
        "One division is taken for no rounding",
        SINCE_2_1,
        partial(of.all_at_once, sizes=(514 * MIB,)),
        "caching:roundup_power2_divisions=[>:1]",
        "sim:8GiB",
        REPRODUCED,
        reserved=514 * MIB,
        cure="caching:roundup_power2_divisions=[>:2]",
        cured=768 * MIB,
    ),
    Case(
        "pytorch/pytorch#74213",
        "With four divisions, a size of 1,200 becomes 1,280",
        "The price of rounding, which makes blocks of similar sizes interchangeable",
        SINCE_2_1,
        partial(of.all_at_once, sizes=(1200 * MIB,)),
        "caching:roundup_power2_divisions=4",
        "sim:8GiB",
        REPRODUCED,
        reserved=1280 * MIB,
        reported=1280 * MIB,
        cure="caching",
        cured=1200 * MIB,
    ),
    Case(
        "pytorch/pytorch#136174",
        "With max_split_size_mb:400, a cached block of 1,024 MiB does not serve 500 MiB",
        "An unsplit block may be at most 20 MiB larger than the rounded request",
        "before max_non_split_rounding_mb",
        partial(of.one_after_another, sizes=(1024 * MIB, 500 * MIB)),
        "caching:max_split_size_mb=400,roundup_power2_divisions=4",
        "sim:8GiB",
        REPRODUCED,
        reserved=1536 * MIB,
        cure="caching:max_split_size_mb=400,roundup_power2_divisions=4,max_non_split_rounding_mb=513",
        cured=1024 * MIB,
    ),
    Case(
        "pytorch/pytorch#17120",
        "A request between 1 and 10 MiB obtains 20 MiB",
        "Segments that requests of middle size share",
        SINCE_2_1,
        partial(of.all_at_once, sizes=(2 * MIB,)),
        "caching",
        "sim:8GiB",
        REPRODUCED,
        reserved=20 * MIB,
        reported=20 * MIB,
    ),
    Case(
        "ml-explore/mlx#3350",
        "106 GB of buffers for 3 GB of weights and a KV cache of 30.5 GB, after shorter requests",
        "A cached buffer serves only requests of nearly its size, and the limit of the cache "
        "exceeds the memory of the machine",
        "not named",
        partial(of.one_after_another, sizes=[n * 32 * KIB for n in CONTEXTS], kept=3 * GIB),
        "mlx_cache",
        "sim:192GiB",
        REPRODUCED,
        reserved=95 * GIB,
        cure="mlx_cache:cache_limit=0",
        cured=35 * GIB,
    ),
    Case(
        "ml-explore/mlx#3886",
        "A block that grows by a few KiB at each step never finds a cached buffer",
        "The same rule: the cached buffers are smaller",
        "not named",
        partial(of.grown_copies, first=MIB, step=4 * KIB, count=1000),
        "mlx_cache",
        "sim:80GiB",
        REPRODUCED,
        reserved=1_553_432_576,
        cure="caching",
        cured=22 * MIB,
    ),
    Case(
        "rapidsai/rmm#1957",
        "A pool with an initial size cannot give its maximum in one block",
        "What the pool grows by is a second segment, which is not merged with the first",
        "25.04",
        partial(of.all_at_once, sizes=(GIB,)),
        "rmm_pool:initial_pool_size=256MiB,maximum_pool_size=1GiB",
        "sim:8GiB",
        REPRODUCED,
        reserved=256 * MIB,
        refused=1,
        cure="rmm_pool:initial_pool_size=1GiB,maximum_pool_size=1GiB",
        cured=GIB,
    ),
    Case(
        "rapidsai/rmm#1664",
        "A pool of at most 64 MiB refuses one of eight blocks of 8 MiB",
        "The initial 1,000,192 bytes serve no block, and each growth leaves a rest",
        "25.04",
        partial(of.all_at_once, sizes=(8 * MIB,) * 8),
        "rmm_pool:initial_pool_size=1000192,maximum_pool_size=64MiB",
        "sim:8GiB",
        REPRODUCED,
        reserved=58_970_368,
        refused=3,
        cure="rmm_pool:initial_pool_size=64MiB,maximum_pool_size=64MiB",
        cured=64 * MIB,
    ),
    Case(
        "rapidsai/rmm#496",
        "The second of two blocks of 8 GiB is refused on a card of 32,510 MiB",
        "The pool doubled, and did not try less. Since then, a refused size is halved",
        "0.15 (2020); not 25.04",
        partial(of.all_at_once, sizes=(8 * GIB, 8 * GIB)),
        "rmm_pool",
        "sim:32510MiB",
        REFUTED,
        reserved=32_510 * MIB,
    ),
    Case(
        "cupy/cupy#7678",
        "With a limit of 1 GiB, 768 MiB are refused while 512 MiB are cached",
        "A pool at its limit did not return its free blocks",
        "before July 2023",
        partial(of.join, parts=(512 * MIB,), whole=768 * MIB),
        "cupy_pool:memory_limit=1GiB",
        "sim:8GiB",
        REFUTED,
        reserved=768 * MIB,
    ),
    Case(
        "cupy/cupy#1256",
        "60 % of a card are refused while 30 % are used and 30 % cached",
        "Variables of the pool kept the blocks that it wanted to return",
        "before May 2018",
        partial(of.join, kept=4608 * MIB, parts=(4608 * MIB,), whole=9216 * MIB),
        "cupy_pool",
        "sim:15GiB",
        REFUTED,
        reserved=13_824 * MIB,
    ),
    Case(
        "microsoft/onnxruntime#15983",
        "A model of more than 16 GB takes 32 GB",
        "Each region is twice as large as the one before",
        "before May 2023; since then, a region has at most 1 GiB",
        partial(of.all_at_once, sizes=(64 * MIB,) * 272),
        "bfc:preset=onnxruntime,largest_region=1TiB",
        "sim:80GiB",
        REPRODUCED,
        reserved=32 * GIB,
        cure="bfc:preset=onnxruntime",
        cured=17 * GIB,
    ),
    Case(
        "microsoft/onnxruntime#14477",
        "A request of 600,000,000 bytes brings the arena to 1,074,790,400 bytes",
        "A region has a power of two of bytes, beside the first one of 1 MiB",
        "all",
        partial(of.all_at_once, sizes=(16, 600_000_000)),
        "bfc:preset=onnxruntime",
        "sim:80GiB",
        REPRODUCED,
        reserved=1_074_790_400,
        reported=1_074_790_400,
        cure="bfc:preset=onnxruntime,extend=requested",
        cured=600_000_256,
    ),
    PlanCase(
        "google/XNNPACK#10800",
        "Three values need 240 bytes, although 180 are enough",
        "The planner does not use the gap below the lowest live value",
        "before July 2026",
        of.all_at_once,
        "XNNPACK",
        "plan",
        REPRODUCED,
        reserved=240,
        reported=240,
        cure="XNNPACK with the leading gap",
        cured=180,
        blocks=((100, 0, 1), (80, 1, 2), (60, 2, 3)),
    ),
    Case(
        "tensorflow/tensorflow#30827",
        "A request is refused although free regions and memory outside of them would be enough",
        "Regions are not merged and not returned",
        "all, without garbage collection",
        partial(of.join, parts=(256 * MIB,) * 3, whole=800 * MIB),
        "bfc",
        "sim:1000MiB",
        REPRODUCED,
        reserved=1000 * MIB,
        refused=1,
        cure="bfc:garbage_collection=true",
        cured=1000 * MIB,
    ),
    Case(
        "pytorch/xla#5759",
        "The default share of the card, 75 %, is too small",
        "One region of that share is all that the allocator ever has",
        "all",
        partial(of.all_at_once, sizes=(61 * GIB,)),
        "bfc:preset=jax",
        "sim:80GiB",
        REPRODUCED,
        reserved=0,
        refused=1,
        cure="bfc:preset=jax,per_process_memory_fraction=0.9",
        cured=72 * GIB,
    ),
)


def _bytes(number: int) -> str:
    return f"{number:,} bytes" if number % MIB else f"{number // MIB:,} MiB"


def rows() -> Iterator[tuple[str, ...]]:
    """A row of the page for each case."""
    for case in CASES:
        refused = f", {case.refused} refused" if case.refused else ""
        cure = f"`{case.cure}`: {_bytes(case.cured)}" if case.cure else ""
        yield (
            f"[{case.issue.split('/')[1]}]({case.link})",
            case.report,
            case.verdict + (", with the reported number" if case.reported else ""),
            f"`{case.spec}`, `{case.device}`: {_bytes(case.reserved)}{refused}",
            case.cause,
            case.versions,
            cure,
        )
