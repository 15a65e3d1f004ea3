# SPDX-License-Identifier: Apache-2.0
"""What small files hold, valid ones and damaged ones, is as it was frozen."""

import hashlib
import json
import pickle
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import pytest

from allocbench.workloads import files
from allocbench.workloads.importers import pytorch_snapshot
from allocbench.workloads.vocabulary import SeveralDevicesError, TraceError
from tests.fuzz import corpus, damage
from tests.fuzz.seeds import seeds
from tests.gold import Gold, outcome
from tests.workloads.importers import drawn, drawn_files

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


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_drawn_snapshots(first: int, gold: Gold) -> None:
    found = {}
    for seed in range(first, first + 50):
        content = drawn.varied(seed)
        if seed % 4 == 3:
            content = damage.damaged(content, random.Random(seed).randbytes(8))
        found[str(seed)] = _of_each_device(pickle.dumps(content))
    gold(f"drawn_snapshots_{first}", found)


_DRAWN: Mapping[str, tuple[Callable[[int], bytes], Callable[..., Any]]] = {
    "profile": (drawn_files.profile, files.read_recording),
    "rmm_log": (drawn_files.rmm_log, files.read),
    "csv": (drawn_files.csv, files.read),
    "lifetimes": (drawn_files.lifetimes, files.read_plannable),
    "operator_memory": (drawn_files.operator_memory, files.read),
}


@pytest.mark.parametrize("kind", _DRAWN)
@pytest.mark.parametrize("first", range(0, 300, 100))
def test_drawn_files(
    kind: str, first: int, gold: Gold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write, read = _DRAWN[kind]
    path, found = Path("file"), {}
    for seed in range(first, first + 100):
        path.write_bytes(write(seed))
        found[str(seed)] = outcome(read, path)
        if "several devices" in str(found[str(seed)]) or kind == "operator_memory":
            found[f"{seed} 0"] = outcome(read, path, device="0")
    gold(f"drawn_{kind}_{first}", found)


def _of_each_device(snapshot: bytes) -> dict[str, Any]:
    def read(device: int | None = None) -> Any:
        with TemporaryFile() as file:
            file.write(snapshot)
            file.seek(0)
            recording = pytorch_snapshot.read_recording(file, Path("a.pickle"), device=device)
        calls, allocs = recording.calls, len(recording.address)
        assert calls is not None
        levels = [calls.reserved(allocs, 9), calls.peak(9)]
        gaps = [recording.gaps.before(allocs // 2), recording.gaps.around(allocs // 2)]
        return recording, levels, gaps, recording.with_failure() if recording.failure else None

    try:
        return {"one": read()}
    except SeveralDevicesError as error:
        return {str(device): outcome(read, device) for device in error.devices}
    except TraceError:
        return {"one": outcome(read)}


def _pickled(content: bytes) -> bytes:
    try:
        return pickle.dumps(json.loads(content), protocol=4)
    except ValueError:
        return content


def test_recordings(gold: Gold) -> None:
    names = sorted(path.name for path in _RECORDINGS.iterdir())
    gold("recordings", {name: files.read_recording(_RECORDINGS / name) for name in names})
