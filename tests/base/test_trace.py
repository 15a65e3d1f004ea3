# SPDX-License-Identifier: Apache-2.0
"""The kinds of events are the same in Python and in C++."""

import re
from pathlib import Path

from allocbench.base import trace as events

HEADER = Path(__file__).parents[2] / "allocators/native/core/trace.hpp"


def test_the_native_code_has_the_same_kinds_of_events() -> None:
    kinds = re.findall(r"^  k(\w+) = (\d+),$", HEADER.read_text(), re.MULTILINE)
    native = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper(): int(op) for name, op in kinds}
    assert native == {name: getattr(events, name) for name in native}
    assert sorted(native.values()) == list(range(events.POOL_RELEASE + 1))
    assert set(events.POOL_EVENTS.values()) < set(native.values())
