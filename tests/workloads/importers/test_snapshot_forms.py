# SPDX-License-Identifier: Apache-2.0
"""Snapshots in pages of memory_viz and as JSON are read like their pickles."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch.cuda import _memory_viz

from allocbench.workloads import read
from allocbench.workloads.importers import pickles
from tests.commands import folder
from tests.traces import assert_same, message_of
from tests.workloads.importers.snapshots import Recorder, snapshot

__all__ = ["folder"]  # the fixture, by its import


def _snapshot() -> dict[str, Any]:
    recorder = Recorder()
    recorder.free(recorder.alloc(1000))
    recorder.alloc(5 << 20, stream=3)
    return snapshot(recorder)


@pytest.mark.parametrize("form", ["page", "indented", "plain", "list"])
def test_the_same_trace(form: str) -> None:
    whole: Any = _snapshot()
    if form == "list":
        whole = whole["segments"]
    forms: dict[str, Callable[[], str]] = {
        "page": lambda: _memory_viz.trace_plot(whole),  # type: ignore[no-untyped-call]
        "indented": lambda: json.dumps(whole, indent=2),
        "plain": lambda: json.dumps(whole),
        "list": lambda: json.dumps(whole),
    }
    Path("t").write_text(forms[form]())
    Path("pickled").mkdir()
    Path("pickled/t").write_bytes(pickle.dumps(whole))
    assert_same(read("t"), read("pickled/t"))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"segments": [{}', "is a snapshot as JSON, but damaged"),
        ('{"segments": 3}', "its 'segments'"),
        ('{"segments": ' + "[" * 100_000, "is nested too deeply"),
        ('<!DOCTYPE html>"base64": "gASV', "is a page of memory_viz, but cut"),
        ('<!DOCTYPE html>"base64": "gAS"', "is a page of memory_viz, but damaged"),
        ('<!DOCTYPE html>"base64": "gASVgASV"', ""),
    ],
)
def test_damaged_forms(content: str, told: str) -> None:
    Path("t").write_text(content)
    assert told in message_of(lambda: read("t"))


def test_a_form_that_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "_MOST", 100)
    Path("t").write_text(json.dumps(_snapshot()))
    assert "of more than 100 bytes" in message_of(lambda: read("t"))
