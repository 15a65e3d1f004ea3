# SPDX-License-Identifier: Apache-2.0
"""What small files hold, valid ones and damaged ones, is as it was frozen."""

from __future__ import annotations

import hashlib
import json
import pickle
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from allocbench.workloads import files
from tests.fuzz import corpus, damage
from tests.fuzz.seeds import seeds
from tests.gold import Gold, outcome

_DAMAGED = 60  # files of each kind
_RECORDINGS = Path(__file__).parents[2] / "data/recordings/h100"
_READERS: Mapping[str, Callable[[Path], Any]] = {
    "csv": files.read,
    "gzip": files.read,
    "lifetimes": files.read_plannable,
    "parquet": files.read,
    "profile": files.read_recording,
    "rmm_log": files.read,
    "snapshot": files.read_recording,
    "snapshot_values": files.read_recording,
}


@pytest.mark.parametrize("kind", _READERS)
def test_files(kind: str, gold: Gold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some results name the file
    inputs = [*seeds()[kind], *corpus.kept()[kind]]
    if kind in (damageable := damage.well_formed(seeds())):
        rng = random.Random(kind)
        for _ in range(_DAMAGED):
            content, write = rng.choice(damageable[kind])
            inputs.append(write(damage.damaged(content, rng.randbytes(4 * rng.randint(1, 3)))))
    path, found = Path("file"), {}
    for content in inputs:
        path.write_bytes(_pickled(content) if kind == "snapshot_values" else content)
        found[hashlib.sha256(content).hexdigest()[:8]] = outcome(_READERS[kind], path)
    gold(f"files_{kind}", found)


def _pickled(content: bytes) -> bytes:
    try:
        return pickle.dumps(json.loads(content), protocol=4)
    except ValueError:
        return content


def test_recordings(gold: Gold) -> None:
    names = sorted(path.name for path in _RECORDINGS.iterdir())
    gold("recordings", {name: files.read_recording(_RECORDINGS / name) for name in names})
