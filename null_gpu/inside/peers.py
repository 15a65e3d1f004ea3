# SPDX-License-Identifier: Apache-2.0
"""One rank of a distributed program without the others: nothing waits for them."""

from __future__ import annotations

import os
from datetime import timedelta
from importlib import import_module
from types import ModuleType
from typing import Any

from .objects import replace_in

_UNIQUE_ID = b"\1" * 128  # what rank 0 would have stored there for NCCL


def be_alone(torch: ModuleType) -> None:
    """Have `init_process_group` start this rank at once; the null GPU answers its collectives.

    Collectives on the CPU have no effect.
    """
    dist = torch.distributed
    original = dist.init_process_group
    stores = list[Any]()  # PyTorch itself does not keep what is written in Python

    class Store(dist.Store):  # type: ignore[name-defined,misc]
        """A store that already has what the other ranks would have written."""

        def __init__(self) -> None:
            super().__init__()
            self._values: dict[str, bytes] = {}

        def set(self, key: str, value: Any) -> None:
            self._values[key] = value if isinstance(value, bytes) else str(value).encode()

        def get(self, key: str) -> bytes:
            return self._values.get(key, _UNIQUE_ID)

        def add(self, key: str, amount: int) -> int:
            count = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(count).encode()
            return count

        def compare_set(self, key: str, expected: Any, desired: Any) -> bytes:
            self.set(key, desired)
            return self._values[key]

        def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
            """Nothing to wait for."""

        def check(self, keys: list[str]) -> bool:
            return all(key in self._values for key in keys)

        def delete_key(self, key: str) -> bool:
            return self._values.pop(key, None) is not None

        def num_keys(self) -> int:
            return len(self._values)

    def init_process_group(backend: str | None = None, *args: Any, **options: Any) -> Any:
        import_module("torch.testing._internal.distributed.fake_pg")  # registers the backend
        for name in ("init_method", "store", "rank", "world_size"):
            options.pop(name, None)
        stores.append(Store())
        return original(
            "cpu:fake,cuda:nccl",
            store=stores[-1],
            rank=int(os.environ["RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            **options,
        )

    replace_in(dist.__name__, "init_process_group", init_process_group)
