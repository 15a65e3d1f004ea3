# SPDX-License-Identifier: Apache-2.0
"""Allocators from outside of the core: shared libraries and Python classes."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from allocbench import allocators
from allocbench.allocators import BadFree, OutOfMemory, SpecError
from allocbench.allocators.spec import parse
from tests.conftest import MIB

# Bump allocation in segments of 1 MiB, which go back to the device at a trim.
BUMP = """
class Bump:
    def __init__(self, device):
        self.device, self.segments, self.next, self.end = device, [], 0, 0

    def allocate(self, size, stream):
        if self.end - self.next < size:
            self.next = self.device.malloc(max(size, 1 << 20))
            if not self.next:
                return None
            self.end = self.next + max(size, 1 << 20)
            self.segments.append(self.next)
        self.next += size
        return self.next - size

    def free(self, address):
        pass

    def trim(self):
        for segment in self.segments:
            self.device.free(segment)
        self.segments, self.next, self.end = [], 0, 0
"""
# First fit in segments of 4 KiB or more; an empty segment goes back to the device at once.
FIRST_FIT = """
class FirstFit:
    def __init__(self, device):
        self.device, self.segments = device, {}  # segment: its size and its blocks

    def allocate(self, size, stream):
        for segment, (length, blocks) in self.segments.items():
            at = segment
            for begin in [*sorted(blocks), segment + length]:
                if begin - at >= size:
                    blocks[at] = size
                    return at
                at = begin + blocks.get(begin, 0)
        segment = self.device.malloc(max(size, 4096))
        if segment:
            self.segments[segment] = max(size, 4096), {segment: size}
        return segment

    def free(self, address):
        for segment, (_, blocks) in self.segments.items():
            if blocks.pop(address, 0):
                break
        if not blocks:
            self.device.free(segment)
            del self.segments[segment]
"""
# Each breaks one rule.
BROKEN = """
class Base:
    def __init__(self, device):
        self.device, self.segment = device, device.malloc(1 << 20)

    def free(self, address):
        pass

class Overlaps(Base):
    def allocate(self, size, stream):
        return self.segment

class Outside(Base):
    def allocate(self, size, stream):
        return self.segment + (1 << 20) - 1

class Unmaps(Base):
    def allocate(self, size, stream):
        return self.segment

    def free(self, address):
        self.device.free(self.segment)

    def trim(self):
        self.device.free(self.segment)

class Raises(Base):
    def allocate(self, size, stream):
        return {}["size"]

class Text(Base):
    def allocate(self, size, stream):
        return "address"

class Full(Base):
    def allocate(self, size, stream):
        raise MemoryError

class FreesBadly(Base):
    def allocate(self, size, stream):
        return self.segment

    def free(self, address):
        raise MemoryError("no table")

class BeginsBadly(Base):
    def __init__(self, device):
        raise MemoryError("no room")

    def allocate(self, size, stream): ...

class Begins:
    def __init__(self):
        pass

    def allocate(self, size, stream): ...
    def free(self, address): ...

class NoFree:
    def allocate(self, size, stream): ...
"""
# Caches blocks by their size, in a global.
CACHE = r"""
#include <cstddef>
#include <sys/types.h>
#include <map>
extern "C" int cudaMalloc(void**, size_t);
extern "C" int cudaFree(void*);
extern "C" int cudaMemGetInfo(size_t*, size_t*);
static std::multimap<ssize_t, void*> cache;
extern "C" void* take(ssize_t size, int, void*) {
  if (auto const found = cache.find(size); found != cache.end()) {
    void* const block = found->second;
    cache.erase(found);
    return block;
  }
  size_t room = 0, capacity = 0;
  cudaMemGetInfo(&room, &capacity);
  if (room < static_cast<size_t>(size))
    for (; !cache.empty(); cache.erase(cache.begin())) cudaFree(cache.begin()->second);
  void* block = nullptr;
  return cudaMalloc(&block, size) == 0 ? block : nullptr;
}
// Refuses streams that CUDA has a meaning of its own for: the legacy and the per-thread default.
extern "C" void* take_on_own(ssize_t size, int device, void* stream) {
  auto const handle = reinterpret_cast<size_t>(stream);
  return handle == 1 || handle == 2 ? nullptr : take(size, device, stream);
}
extern "C" void give(void* block, ssize_t size, int, void*) { cache.emplace(size, block); }
"""


@pytest.fixture
def classes(tmp_path: Path) -> str:
    (tmp_path / "own.py").write_text(BUMP + FIRST_FIT + BROKEN)
    return str(tmp_path / "own.py")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("library")
    (folder / "cache.cpp").write_text(CACHE)
    line = [os.environ.get("CXX", "g++"), "-std=c++17", "-shared", "-fPIC"]
    subprocess.run([*line, "-o", folder / "cache.so", folder / "cache.cpp"], check=True)
    return f"{folder / 'cache.so'}:malloc=take,free=give"


@pytest.fixture
def streams(library: str) -> allocators.Allocator:
    return made(library.replace("malloc=take", "malloc=take_on_own"))


def made(spec: str, capacity: str = "8MiB") -> allocators.Allocator:
    return allocators.make(spec, allocators.make_device(f"sim:{capacity}"))


def test_the_largest_free_range_is_that_of_the_snapshot(classes: str) -> None:
    allocator = made(f"{classes}:FirstFit", "64KiB")
    rng, live = random.Random(7), list[int]()
    for _ in range(3000):
        if live and rng.random() < 0.48:
            allocator.deallocate(live.pop(rng.randrange(len(live))))
        else:
            try:
                live.append(allocator.allocate(rng.randrange(1, 3000)))
            except OutOfMemory:
                continue
        blocks = [block for segment in allocator.snapshot() for block in segment.blocks]
        free = max((block.size for block in blocks if not block.allocated), default=0)
        assert allocator.largest_free() == free


def test_a_class_serves_and_counts_as_every_strategy_does(classes: str) -> None:
    bump = made(f"check:of={classes}:Bump")
    first, second = bump.allocate(1000), bump.allocate(500)
    assert second == first + 1000
    bump.allocate(2 * MIB)
    assert (bump.stats().requested, bump.stats().reserved) == (2 * MIB + 1500, 3 * MIB)
    assert sorted(len(segment.blocks) for segment in bump.snapshot()) == [1, 3]
    assert bump.largest_free() == MIB - 1500
    with pytest.raises(OutOfMemory):
        bump.allocate(6 * MIB)
    with pytest.raises(BadFree):
        bump.deallocate(first + 1)
    for segment in bump.snapshot():
        for block in segment.blocks:
            if block.allocated:
                bump.deallocate(block.address)
    bump.trim()
    assert bump.stats().reserved == bump.device.reserved == 0
    bump.check()


def test_a_limit_around_a_class_holds(classes: str) -> None:
    bump = made(f"limit:bytes=2MiB,of={classes}:Bump")
    bump.allocate(MIB)
    bump.allocate(MIB)
    with pytest.raises(OutOfMemory):
        bump.allocate(1)


def test_a_private_pool_has_an_object_of_its_own(classes: str) -> None:
    bump = made(f"{classes}:Bump")
    bump.pool_event(4, 7)
    outside, inside = bump.allocate(512), bump.allocate(512, pool=7)
    assert abs(outside - inside) >= MIB - 512


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Overlaps", "which overlaps the block"),
        ("Outside", "which is not inside of a segment"),
        ("Raises", "allocate raised KeyError"),
        ("Text", "allocate returned no address"),
    ],
)
def test_a_class_that_breaks_a_rule_is_named(classes: str, name: str, message: str) -> None:
    allocator = made(f"{classes}:{name}")

    def twice() -> None:
        allocator.allocate(512)
        allocator.allocate(512)

    with pytest.raises(SpecError, match=f"{name}.*{message}"):
        twice()


def test_a_segment_with_a_block_in_use_stays(classes: str) -> None:
    allocator = made(f"{classes}:Unmaps")
    block = allocator.allocate(512)
    with pytest.raises(
        SpecError, match=r"trim raised SpecError: .*in which the block .* is in use"
    ):
        allocator.trim()
    allocator.deallocate(block)
    assert allocator.stats().reserved == 0


def test_memory_error_refuses_a_request_and_nothing_else(classes: str) -> None:
    with pytest.raises(OutOfMemory):
        made(f"{classes}:Full").allocate(512)
    allocator = made(f"{classes}:FreesBadly")
    block = allocator.allocate(512)
    with pytest.raises(SpecError, match="free raised MemoryError: no table"):
        allocator.deallocate(block)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("{}:Begins", "raised TypeError"),
        ("{}:BeginsBadly", "raised MemoryError: no room"),
        ("{}:NoFree", "has no method 'free'"),
        ("{}:Nothing", "has no class 'Nothing'"),
        (
            "external:class=no_such_module.Pool",
            "class 'no_such_module.Pool' has no module: write MODULE:CLASS",
        ),
        ("no_such_module:Pool", "no module is called 'no_such_module'"),
        ("/no/such/file.py:Pool", "there is no file"),
        ("/no/such/file.so", "cannot read the library"),
        ("external", "needs either"),
        ("bfc:Pool", "'Pool' is not option=value"),
    ],
)
def test_what_cannot_be_loaded_is_said(classes: str, spec: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        made(spec.format(classes))


@pytest.mark.parametrize("missing", ["an_import", "zzz"])
def test_an_error_in_a_module_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    name = f"needs_{missing}"
    (tmp_path / f"{name}.py").write_text(f"import {missing}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for module in (f"{tmp_path / name}.py", name):
        with pytest.raises(SpecError, match=f"{name}.* raised ModuleNotFoundError: .* '{missing}'"):
            made(f"{module}:Pool")
    for module in (f"{missing}.deep", "json.deep"):
        with pytest.raises(SpecError, match=f"no module is called '{module}', and there is no"):
            made(f"{module}:Pool")


def test_a_module_here_is_found(classes: str) -> None:
    code = "from allocbench import allocators as a; a.make('own:Bump', a.make_device('sim:8MiB'))"
    line = [sys.executable, "-P", "-c", code]
    subprocess.run(line, check=True, cwd=Path(classes).parent)


def test_a_library_serves_from_its_cache_and_gives_it_back(library: str) -> None:
    cache = made(library)
    block = cache.allocate(6 * MIB)
    cache.deallocate(block)
    assert cache.allocate(6 * MIB) == block
    cache.deallocate(block)
    cache.allocate(5 * MIB)
    assert (cache.stats().reserved, cache.stats().peak_reserved) == (5 * MIB, 6 * MIB)
    with pytest.raises(OutOfMemory):
        cache.allocate(4 * MIB)


def test_each_allocator_has_its_own_globals(library: str) -> None:
    first, second = made(library), made(library)
    first.deallocate(first.allocate(MIB))
    second.allocate(MIB)
    assert second.stats().reserved == MIB
    first.allocate(MIB)
    assert first.stats().reserved == MIB


def test_a_missing_function_of_a_library_is_said(library: str) -> None:
    file = library.partition(":")[0]
    with pytest.raises(SpecError, match="has no function 'my_malloc'"):
        made(file)
    bad = Path(file).with_name("bad.so")
    bad.write_bytes(b"\x7fELF")
    with pytest.raises(SpecError, match=r"cannot load the library '.*bad.so': .*bad.so: file too"):
        made(str(bad))


def test_short_forms() -> None:
    assert str(parse("./a.so")) == "external:library=./a.so"
    assert str(parse("limit:bytes=1,of=a.b:C")) == "limit:bytes=1,of=external:class=a.b:C"
    assert str(parse("external:class=a:B")) == "external:class=a:B"


def test_offsets_of_another_planner_are_judged() -> None:
    sizes, first, last = [4, 6, 4], [0, 1, 3], [3, 4, 5]
    plan = allocators.judge(sizes, first, last, [0, 4, 0], planner="own")
    assert (plan.height, plan.max_load, plan.optimal) == (10, 10, True)
    assert allocators.judge(sizes, first, last, [8, 0, 20], planner="own").height == 24
    with pytest.raises(SpecError, match="blocks 0 and 1 are alive at the same time and overlap"):
        allocators.judge(sizes, first, last, [0, 3, 100], planner="own")
    with pytest.raises(SpecError, match="offsets: 2 for 3 blocks"):
        allocators.judge(sizes, first, last, [0, 4], planner="own")


@pytest.mark.parametrize("seed", range(60))
def test_an_overlap_is_found_wherever_it_is(seed: int) -> None:
    rng = random.Random(seed)
    count = rng.randrange(1, 12)
    sizes = [rng.randrange(1, 5) for _ in range(count)]
    first = [rng.randrange(6) for _ in range(count)]
    last = [begin + rng.randrange(1, 4) for begin in first]
    offsets = [rng.randrange(count * 4) for _ in range(count)]
    pairs = {
        (a, b)
        for a in range(count)
        for b in range(count)
        if a != b
        and max(first[a], first[b]) < min(last[a], last[b])
        and offsets[a] <= offsets[b] < offsets[a] + sizes[a]
    }
    if pairs:
        with pytest.raises(SpecError, match=r"blocks \d+ and \d+ are alive") as raised:
            allocators.judge(sizes, first, last, offsets, planner="own")
        words = str(raised.value).split()
        assert (int(words[1]), int(words[3])) in pairs
    else:
        height = max(map(sum, zip(offsets, sizes, strict=True)))
        found = allocators.judge(sizes, first, last, offsets, planner="own")
        assert (found.height, found.offsets.tolist()) == (height, offsets)


def test_no_stream_of_a_trace_is_a_special_one_for_a_library(streams: allocators.Allocator) -> None:
    assert len({streams.allocate(512, stream) for stream in range(4)}) == 4
