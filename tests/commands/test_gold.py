# SPDX-License-Identifier: Apache-2.0
"""What commands print and write for small inputs of every kind is as it was frozen."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.answer_inputs import CASES, TEXTS, chunks
from tests.commands import QUICK, run
from tests.gold import Gold, facts

_FEW = CASES[1:3] + CASES[11:14]
_LINES: dict[str, list[str]] = {
    "check": [
        *(f"check {name} --device {device}" for name, device in CASES[::3]),
        *(f"check {name} --all" for name in ("gpt2-train.parquet", "failed.pickle", *TEXTS)),
        "check training.parquet leak.parquet --device sim:800MiB,sim:1GiB,l4",
        "check training.parquet --device sim:1GiB --allocator caching:expandable_segments=true",
    ],
    "explain": [f"explain {name} --device {device}" for name, device in CASES[::4]],
    "fit": [
        *(f"fit {name} --time-limit 0 --allocators caching,bfc,naive" for name, _ in CASES[11::3]),
        "fit training.parquet --time-limit 0",
    ],
    "tune": [
        *(f"tune {name} --device {device} --budget 8" for name, device in _FEW),
        "tune training.parquet --allocator bfc --budget 8",
    ],
    "recommend": [f"recommend {name} --device {device} --budget 6" for name, device in _FEW[1:4]],
    "diff": [
        "diff training.parquet other.parquet",
        "diff training.parquet leak.parquet --allocators caching,bfc",
        "diff training.parquet --versions 2.9,2.13",
        "diff gpt2-train.parquet resnet50-train.parquet",
    ],
    "whatif": [
        "whatif gpt2-train.parquet",
        "whatif gpt2-train.parquet --device sim:4GiB",
        "whatif resnet50-train.parquet --until l4 --ranks 4",
    ],
    "serving": [
        "serving llama-3.1-8b --device h100",
        "serving qwen2.5-7b --device l4 --engine sglang",
        "serving llama-3.1-8b --device l4",
    ],
    "compare": [
        f"compare {name} --device {device} --allocators caching,bfc,naive {QUICK}"
        for name, device in _FEW
    ],
    "inspect": [f"inspect {name}" for name, _ in CASES[::3]],
    "plan": [
        "plan training.parquet --planner greedy_by_size",
        "plan decoding.parquet --planner best_fit",
        "plan profile.json --planner no_reuse",
    ],
    "replay": [
        *(f"replay {name} --device {device}" for name, device in _FEW),
        "replay rmm.csv --allocator bfc --device sim:64MiB",
    ],
    "verify": [f"verify {name}" for name, _ in CASES if name.endswith(".pickle.gz")],
    "others": ["conform caching", "conform bump", "list devices", "list planners"],
}
_TIME = re.compile(r"^time .*$", re.MULTILINE)  # of a planner
_WITHOUT_JSON = ("list",)
_GROUPS = [
    (f"{name}_{n}", lines) for name in _LINES for n, lines in enumerate(chunks(_LINES[name], 8))
]


@pytest.mark.parametrize(("group", "lines"), _GROUPS, ids=[name for name, _ in _GROUPS])
def test_commands(
    group: str, lines: Sequence[str], gold: Gold, in_inputs: Path, tmp_path: Path
) -> None:
    found: dict[str, Any] = {}
    for line in lines:
        into = tmp_path / "answer.json"
        into.unlink(missing_ok=True)
        result = run(line)
        found[line] = {"code": result.exit_code, "text": facts(_TIME.sub("", result.output))}
        if not line.startswith(_WITHOUT_JSON):
            run(f"{line} --json {into}")
            if into.exists():
                found[line]["json"] = facts(json.loads(into.read_text()))
    gold(f"command_{group}", found)
