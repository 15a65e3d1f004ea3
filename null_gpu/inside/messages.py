# SPDX-License-Identifier: Apache-2.0
"""Bytes that the ranks of a distributed program send each other on null GPUs.

They go through the store of the process group, because what arrives on a null GPU cannot be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import ModuleType
from typing import Any


class Messages:
    """The messages of one rank. alone: the other ranks do not run."""

    def __init__(self, torch: ModuleType, alone: bool) -> None:
        self.alone = alone
        self._dist, self._c10d = torch.distributed, torch.distributed.distributed_c10d
        self._sent = Counter[str]()

    def exchange(
        self, group: Any, kind: str, sent: bytes | None, sources: Iterable[int]
    ) -> list[bytes]:
        """Send bytes, unless None, and return what these global ranks send with the same call.

        A rank that does not run sends what this rank sends, or else nothing.
        """
        if self.alone:
            return [sent or b"" for _ in sources]
        here, store = self._dist.get_rank(), self._c10d._get_default_store()
        kind = f"allocbench/{group.group_name}/{kind}"
        message = f"{kind}/{self._sent[kind]}"
        self._sent[kind] += 1
        if sent is not None:
            store.set(f"{message}/{here}", sent)
        return [store.get(f"{message}/{source}") for source in sources]

    def peer(self, given: Any, name: str, group: Any) -> int:
        """The global rank that a call names, by that rank or by its rank in the group."""
        if given.get(f"group_{name}") is not None:
            return int(self._dist.get_global_rank(group, given[f"group_{name}"]))
        return int(given[name] or 0)
