# SPDX-License-Identifier: Apache-2.0
"""Which promises an allocator keeps."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allocbench import allocators
from allocbench.questions.conform import as_json, conform

# A free list that breaks what its options say.
POOL = """
class Pool:
    align, reuse, give_back, rotate = 512, True, True, False
    made = 0

    def __init__(self, device):
        type(self).made += 1
        self.device, self.cache, self.sizes = device, {}, {}
        self.shift = self.rotate * type(self).made * 512

    def allocate(self, size, stream):
        whole = -(-size // 512) * 512
        if self.cache.get(whole) and self.reuse:
            return self.cache[whole].pop()
        extra = self.align if self.align < 512 else self.shift
        segment = self.device.malloc(whole + extra)
        if not segment and self.give_back:
            for blocks in self.cache.values():
                for block in blocks:
                    self.device.free(block)
            self.cache = {}
            segment = self.device.malloc(whole + extra)
        if segment:
            self.sizes[segment + extra] = whole
        return segment and segment + extra

    def free(self, address):
        self.cache.setdefault(self.sizes[address], []).append(address)

    def trim(self):
        for blocks in self.cache.values():
            for block in blocks:
                self.device.free(block)
        self.cache = {}

class Unaligned(Pool):
    align = 128
    give_back = False
    trim = None

class Forgets(Pool):
    reuse = False
    give_back = False

class Rotates(Pool):
    rotate = True
    give_back = False
    trim = None

class Keeps(Pool):
    give_back = False
    trim = None
"""
REUSE, REFUSAL = "freed memory serves again", "a request that is too large"
GIVE_BACK, TRIM = "cached memory goes back", "trim gives back"
SAME, ALIGNED, FILLS = "the same requests", "addresses are multiples", "blocks of 64 MiB"


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("Pool", set()),
        ("Unaligned", {ALIGNED, FILLS, GIVE_BACK, TRIM}),
        ("Forgets", {REUSE, GIVE_BACK}),
        ("Rotates", {SAME, FILLS, GIVE_BACK, TRIM}),
        ("Keeps", {GIVE_BACK, TRIM}),
    ],
)
def test_broken_promises_are_found(tmp_path: Path, name: str, broken: set[str]) -> None:
    (tmp_path / "pools.py").write_text(POOL)
    promises = conform(f"{tmp_path / 'pools.py'}:{name}")
    found = {promise.name for promise in promises if not promise.holds}
    assert {next(name for name in found if name.startswith(start)) for start in broken} == found
    assert as_json(name, promises)["conforms"] == broken.isdisjoint({ALIGNED, REUSE})


def test_the_example_of_the_documentation_keeps_every_promise(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/extending.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(class Exact:.*?)```", page, flags=re.DOTALL)
    assert code
    (tmp_path / "exact.py").write_text(code[1])
    assert [one.name for one in conform(f"{tmp_path / 'exact.py'}:Exact") if not one.holds] == []


@pytest.mark.parametrize("name", ["arena", "caching", "expandable", "naive", "tlsf"])
def test_our_strategies_keep_what_is_required(name: str) -> None:
    assert name in allocators.names()
    assert all(promise.holds for promise in conform(name) if promise.required)
