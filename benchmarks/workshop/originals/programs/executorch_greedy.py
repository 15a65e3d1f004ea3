# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's memory planning algorithm `greedy`, from its package: FOLDER FILE OUT.

The module is loaded alone; for lifetimes, `greedy` uses nothing of what the module imports but
PyTorch.
"""

import csv
import importlib.util
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

OTHERS = (
    "executorch",
    "executorch.exir",
    "executorch.exir.memory",
    "executorch.exir.control_flow",
    "executorch.exir.delegate",
    "executorch.exir.operator",
    "executorch.exir.operator.convert",
    "executorch.exir.schema",
    "executorch.exir.tensor",
)


class Block:
    """A block, with what `greedy` reads of a TensorSpec."""

    mem_id = storage_base = None

    def __init__(self, lower, upper, size):
        self.lifetime = [lower, upper - 1]  # both ends are included
        self.allocated_memory = size

    def realign(self, alignment):
        """Bytes at an alignment of 1."""
        return self.allocated_memory


def algorithm(folder):
    """`greedy` of the package in a folder."""
    for name in OTHERS:
        sys.modules[name] = MagicMock()
    for name in ("error", "memory_planning"):
        whole = f"executorch.exir.{name}"
        file = Path(folder, "executorch", "exir", f"{name}.py")
        spec = importlib.util.spec_from_file_location(whole, file)
        sys.modules[whole] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[whole])
    return sys.modules["executorch.exir.memory_planning"].greedy


def main(folder, given, found):
    """Plan the lifetimes of a file."""
    with open(given) as file:
        rows = [tuple(map(int, row.values())) for row in csv.DictReader(file)]
    blocks = {number: Block(*row) for number, *row in rows}
    result = algorithm(folder)(1, list(blocks.values()), types.SimpleNamespace(), None)
    with open(found, "w") as file:
        file.write("id,offset\n")
        for number, block in blocks.items():
            file.write(f"{number},{result.spec_dict[block].mem_offset}\n")


main(*sys.argv[1:])
