# SPDX-License-Identifier: Apache-2.0
"""Which promises an allocator keeps."""

import re
from pathlib import Path

import pytest

from allocbench import allocators
from allocbench.questions import conform as conformance
from allocbench.questions.conform import as_json, conform
from tests.commands import run

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


ENDS = """
import os, signal

class Crashes:
    def __init__(self, device):
        self.device = device

    def allocate(self, size, stream):
        os.kill(os.getpid(), signal.SIGKILL)

    def free(self, address):
        pass

class Leaves(Crashes):
    def allocate(self, size, stream):
        print("leaving")
        os._exit(0)

class Hangs(Crashes):
    def allocate(self, size, stream):
        while True:
            pass

class HangsAtOnce(Hangs):
    def __init__(self, device):
        self.allocate(0, 0)
"""


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("Crashes", ["it ended the process: Killed"] * 8),
        ("Leaves", ["it ended the process: with exit code 0"] * 8),
        ("Hangs", ["no answer within 1 seconds", *["not tried"] * 7]),
    ],
)
def test_an_allocator_may_end_the_process_or_never_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, seen: list[str]
) -> None:
    monkeypatch.setattr(conformance, "SECONDS", 1 if name == "Hangs" else 60)
    (tmp_path / "ends.py").write_text(ENDS)
    promises = conform(f"{tmp_path / 'ends.py'}:{name}")
    assert [promise.seen for promise in promises] == seen
    assert not any(promise.holds for promise in promises)


def test_an_allocator_that_cannot_be_made_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "SECONDS", 1)
    (tmp_path / "ends.py").write_text(ENDS)
    result = run(f"conform {tmp_path / 'ends.py'}:HangsAtOnce")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr == f"error: {tmp_path / 'ends.py'}:HangsAtOnce: no answer within 1 seconds\n"
    )


@pytest.mark.parametrize("name", ["arena", "caching", "expandable", "naive", "tlsf"])
def test_our_strategies_keep_what_is_required(name: str) -> None:
    assert name in allocators.names()
    assert all(promise.holds for promise in conform(name) if promise.required)
