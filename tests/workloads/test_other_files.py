# SPDX-License-Identifier: Apache-2.0
"""Files that are not traces are named, and the error says what to do instead."""

import io
import sqlite3
import tarfile
import zipfile
from pathlib import Path

import pytest
import torch

from allocbench.base.error_text import HOST, SHARED
from allocbench.workloads import error_texts, files
from allocbench.workloads.formats import OTHERS, text_of
from tests.commands import error, folder, output, run
from tests.questions import test_error_text as texts
from tests.traces import message_of
from tests.workloads.memory_dumps import PROFILE

__all__ = ["folder"]  # the fixture, by its import


def _saved(*, zipped: bool = True) -> bytes:
    sink = io.BytesIO()
    torch.save({"weight": torch.zeros(3)}, sink, _use_new_zipfile_serialization=zipped)
    return sink.getvalue()


def _tar() -> bytes:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name in ("a.pickle", "b.pickle"):
            archive.addfile(tarfile.TarInfo(name))
    return sink.getvalue()


def _zip() -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        for name in ("a.pickle", "b.pickle"):
            archive.writestr(name, b"")
    return sink.getvalue()


def _database() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table a (b)")
        return database.serialize()


SAMPLES = {
    "the configuration of a model": [
        b'{"architectures": ["GptOssForCausalLM"], "hidden_size": 2880}',
        b'{\n  "_name": "x",\n  "architectures": [\n    "LlamaForCausalLM"\n  ]\n}',
    ],
    "a memory timeline of the PyTorch profiler": [b"[[1, 2], [3]]"],
    "a file of torch.save, such as a checkpoint": [_saved(), _saved(zipped=False)],
    "a file of safetensors": [
        (60).to_bytes(8, "little") + b'{"weight": {"dtype": "F32", "shape": [3]}}',
        (60).to_bytes(8, "little") + b'{"__metadata__": {"format": "pt"}}',
    ],
    "a memory profile of JAX (pprof)": [PROFILE],
    "a buffer assignment of XLA": [
        b"BufferAssignment:\nallocation 0: size 4194304\n",
        b"\n  BufferAssignment:\nallocation 0: size 4194304\n",
    ],
    "RMM's debug log": [b"[ 53472][15:47:02:841961][info  ] ----- RMM LOG BEGIN -----\n"],
    "a log of nvidia-smi": [
        b"Thu Sep 26 16:56:56 2024\n+-----+\n| NVIDIA-SMI 535.161.08   Driver Version: 535 |\n",
        b"timestamp, memory.used [MiB]\n2024/01/01 10:00:00.000, 1024 MiB\n",
    ],
    "memory_record.csv of the Ascend profiler": [
        b"Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB)\nPTA,17.5,4.0,20.0\n"
    ],
    "a database of SQLite, as Nsight Systems writes": [_database()],
    "a model of llama.cpp (GGUF)": [b"GGUF\3\0\0\0\x23\1\0\0"],
    "compressed with zstd": [b"\x28\xb5\x2f\xfd\x24\x00"],
    "an archive": [_zip(), _tar()],
    "text in UTF-16": ["op,id,size\n".encode("utf-16")],
}


def test_every_kind_has_a_sample() -> None:
    assert SAMPLES.keys() == {one.name for one in OTHERS if one.begins}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_is_named(name: str) -> None:
    (other,) = [one for one in OTHERS if one.name == name]
    for content in SAMPLES[name]:
        Path("file").write_bytes(content)
        told = message_of(lambda: files.read("file"))
        assert told == f"file: {other}"
        assert told.startswith(f"file: is {name}")
        assert told.endswith(other.instead)


@pytest.mark.parametrize("name", texts.KNOWN)
def test_a_text_is_explained_and_otherwise_named(name: str) -> None:
    text = f"INFO starts\n{texts.KNOWN[name][0]}\nINFO ends\n"
    Path("log").write_text(text)
    found = error_texts.parse(text)
    assert found is not None
    kind = text_of(found.program, found.backend).name
    assert f"log: is {kind}: `allocbench explain` says" in error("fit log")
    shown = output("explain log")
    assert (
        f"what the text of {found.program} says" in shown
        or "certain" in shown
        or "goes on" in shown
        or "the host" in shown
    )
    if not found.segments and found.device not in (HOST, SHARED):
        instead = text_of(found.program, found.backend).instead
        assert " ".join(instead.split()) in " ".join(shown.split())
    assert ("certain" in shown.lower()) or not texts.KNOWN[name][2]


@pytest.mark.parametrize("name", texts.KNOWN)
def test_check_answers_from_a_text(name: str) -> None:
    """The exit code is 1 only for what is proven, and for blocks that are likely in pieces."""
    text, kind, certain, *_ = texts.KNOWN[name]
    Path("log").write_text(text)
    done = run("check log")
    proven = certain and kind in ("full", "pieces")
    likely = kind == "pieces" and "likely, not certain" in done.stdout
    assert done.exit_code == (1 if proven or likely else 2)
    assert done.stdout.startswith("DID NOT FIT: " if proven or likely else "CANNOT TELL")


def test_check_takes_the_size_of_the_card() -> None:
    Path("log").write_text(texts.KNOWN["JAX"][0])
    assert run("check log").exit_code == 2
    assert run("check log --device sim:4GiB").exit_code == 1
    Path("memory.prof").write_bytes(PROFILE)
    done = run("check memory.prof")
    assert done.exit_code == 2
    assert done.stdout.startswith("CANNOT TELL: A memory profile of JAX")


def test_an_error_at_the_end_of_a_long_log() -> None:
    text = "INFO a step\n" * 100_000 + texts.LLAMA.format(free=7000)
    Path("log").write_text(text)
    assert output("explain log").startswith("Full, certain. With the request of 2.00 GiB, 7.30 GiB")


def test_a_text_sends_nothing_to_the_terminal_and_the_page() -> None:
    Path("log").write_bytes(
        b"\x1b]0;title\x07<script>\x1b[31mRuntimeError: CUDA out of memory. Tried to allocate"
        b" 3.00 GiB\x1b[2J (GPU 0; 10.00 GiB total capacity; 9.00 GiB already allocated; 1.00 MiB"
        b" free; 9.10 GiB reserved in total by PyTorch)\x9b5n\xff"
    )
    done = run("explain log")
    assert done.exit_code == 0
    assert done.stdout.startswith("Full, certain.")
    assert "\x1b" not in done.stdout
    assert "<script>" not in done.stdout


def test_json_has_ranges_of_bytes() -> None:
    Path("log").write_text(texts.KNOWN["CuPy above its limit"][0])
    assert '"certain": true' in output("explain log --json -")
    assert '"low": 2147483648' in output("explain log --json -")
