# SPDX-License-Identifier: Apache-2.0
"""Command lines that are wrong: each ends with exit code 2 and one line, in a file of data."""

from collections.abc import Callable
from pathlib import Path

import pytest

from allocbench.workloads import ALLOC, FREE, write
from tests.commands import QUICK, error, folder, output
from tests.gold import transcript
from tests.traces import make
from tests.workloads.serving.test_architectures import LLAMA
from tests.workloads.serving.test_architectures import write as write_config
from tests.workloads.serving.test_requests import AZURE

__all__ = ["folder"]  # the fixture, by its import
_OFFSETS = {
    "twice": "id,offset\na,0\na,0\nb,4\n",
    "overlapping": "id,offset\na,0\nb,3\n",
    "short": "id,offset\na,0\n",
    "long": "id,offset\na,0\nb,4\nc,9\n",
    "word": "id,offset\na,0\nb,four\n",
    "negative": "id,offset\na,0\nb,-4\n",
    "columns": "id,place\na,0\n",
    "odd": "id,offset\na,0\nb,4\n",
}


@pytest.fixture
def inputs(folder: Path) -> None:
    """What the lines name."""
    Path("folder.csv").mkdir()
    Path("log").write_text(AZURE)
    Path("empty.json").write_text("[]")
    output(f"compare good.csv {QUICK} --allocators bfc,naive --results results.zip")
    write(make([(ALLOC, 0, 100), (ALLOC, 1, 100), (FREE, 0, 0), (ALLOC, 0, 1)]), "trace.parquet")
    Path("bad.csv").write_text("id,lower,upper,size\na,1,1,1\n")
    Path("huge.csv").write_text(f"id,lower,upper,size\na,0,1,{2**63 - 1}\n")
    Path("blocks.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,6\n")
    for name, table in _OFFSETS.items():
        Path(f"{name}.offsets.csv").write_text(table)
    write_config(Path(), LLAMA)
    Path("requests").write_text(
        "\n".join(
            [AZURE.splitlines()[0], *[AZURE.splitlines()[1].rpartition(",")[0] + ",300000"] * 80]
        )
    )


_COMMANDS = sorted({line.split()[0] for line in transcript("command_lines")})


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_wrong_line_is_one_line(command: str, inputs: None, told: Callable[..., None]) -> None:
    told("command_lines", lambda line: error(line).removesuffix("\n"), command)
