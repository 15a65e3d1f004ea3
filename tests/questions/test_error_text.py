# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  lines of logs are as long as programs print them
"""Texts of errors with what their numbers prove. The numbers are made up, and the words are real.

Each text is the wording of a version, around numbers of our own. The verdicts were computed by hand.
"""

import tomllib
from pathlib import Path

import pytest

from allocbench.questions.error_text import verdict
from allocbench.workloads import TraceError
from allocbench.workloads.error_texts import Amount, ErrorText, parse

GIB, MIB = 1 << 30, 1 << 20

TORCH_1_0 = (
    "RuntimeError: CUDA out of memory. Tried to allocate {x} (GPU 0; 10.00 GiB total capacity;"
    " {a} already allocated; {f} free; {r} cached)"
)
TORCH_1_4 = (
    "RuntimeError: CUDA out of memory. Tried to allocate {x} (GPU 0; 10.00 GiB total capacity;"
    " {a} already allocated; {f} free; {total} reserved in total by PyTorch)"
)
TORCH_1_11 = (
    TORCH_1_4 + " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid"
    " fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
TORCH_2_1 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {x}. GPU 0 has a total"
    " capacty of 10.00 GiB of which {f} is free. Including non-PyTorch memory, this process has"
    " {p} memory in use. Of the allocated memory {a} is allocated by PyTorch, and {r} is reserved by"
    " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " max_split_size_mb to avoid fragmentation."
)
TORCH_2_13 = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {x}. GPU 0 has a total"
    " capacity of 10.00 GiB of which {f} is free. Including non-PyTorch memory, this process has"
    " {p} memory in use. Of the allocated memory {a} is allocated by PyTorch, and {r} is reserved by"
    " PyTorch but unallocated. If reserved but unallocated memory is large try setting"
    " PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
XPU = (
    "torch.OutOfMemoryError: XPU out of memory. Tried to allocate {x}. GPU 0 has a total capacity of"
    " 10.00 GiB. Of the allocated memory {a} is allocated by PyTorch, and {r} is reserved by PyTorch"
    " but unallocated. Please use `empty_cache` to release all unoccupied cached memory."
)
NPU = (
    "RuntimeError: NPU out of memory. Tried to allocate {x} (NPU 0; 10.00 GiB total capacity; {a}"
    " already allocated; {a} current active; {f} free; {total} reserved in total by PyTorch) If"
    " reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation."
)
# What is requested, free, unallocated, allocated, in use by the process, and the verdict.
NUMBERS = {
    "full": ("3.00 GiB", "1.00 GiB", "1.50 GiB", "7.00 GiB", "9.00 GiB", "full", True, 512 * MIB),
    "pieces": ("2.00 GiB", "1.00 GiB", "1.50 GiB", "7.00 GiB", "9.00 GiB", "pieces", False, GIB),
    "enough": ("1.00 GiB", "2.00 GiB", "0 bytes", "7.00 GiB", "8.00 GiB", "enough", True, None),
    "undecided": (
        "2.50 GiB",
        "1.00 GiB",
        "1.50 GiB",
        "7.00 GiB",
        "9.00 GiB",
        "unknown",
        False,
        None,
    ),
    "a small request": (
        *("20.00 MiB", "6.00 MiB", "4.00 MiB", "9.00 GiB", "9.90 GiB"),
        *("full", False, 10 * MIB),
    ),
    "nothing free": ("2.00 MiB", "0 bytes", "0 bytes", "9.00 GiB", "10.00 GiB", "full", True, None),
}


@pytest.mark.parametrize(
    "wording", [TORCH_1_0, TORCH_1_4, TORCH_1_11, TORCH_2_1, TORCH_2_13, NPU], ids=range(6)
)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_pytorch(wording: str, numbers: str) -> None:
    x, f, r, a, p, kind, certain, missing = NUMBERS[numbers]
    total = {"1.50 GiB": "8.50 GiB", "4.00 MiB": "9.00 GiB"}.get(r, a)
    found = verdict(parsed(wording.format(x=x, f=f, r=r, a=a, p=p, total=total)))
    if "{total}" in wording and numbers == "nothing free":  # as far as the digits of a sum show
        assert (found.kind, found.certain) == ("unknown", False)
        return
    assert (found.kind, found.certain) == (kind, certain)
    if missing is not None:
        assert found.missing is not None
        assert abs(found.missing.middle - missing) < 20 * MIB


def parsed(text: str) -> ErrorText:
    error = parse(text)
    assert error is not None
    return error


def test_every_number_of_a_message() -> None:
    text = TORCH_2_13.replace(
        "Including", "Process 17 has 1.00 GiB memory in use. 9.50 GiB allowed; Including"
    ).replace(
        "by PyTorch, and",
        "by PyTorch, with 512.00 MiB allocated in private pools (e.g., CUDA Graphs), and",
    )
    error = parsed(
        text.format(x="3.00 GiB", f="1.00 GiB", r="1.00 GiB", a="6.50 GiB", p="8.00 GiB")
    )
    assert error.requested == Amount(int(2.995 * GIB) + 1, int(3.005 * GIB))
    assert [number for number, _ in error.others] == ["17"]
    amounts = error.free, error.total, error.allowed, error.process, error.allocated, error.private
    middles = [amount.middle / GIB for amount in amounts if amount is not None]
    assert middles == pytest.approx([1, 10, 9.5, 8, 6.5, 0.5], abs=1e-6)
    assert (error.hint, error.device) == ("expandable_segments", "GPU 0")
    found = verdict(error)
    assert (found.kind, found.certain) == ("full", True)
    assert found.others is not None
    assert found.others.middle / GIB == pytest.approx(1, abs=0.01)
    assert found.outside is not None
    assert found.outside.middle / GIB == pytest.approx(0.5, abs=0.01)


def test_private_pools_may_hold_what_is_missing() -> None:
    text = TORCH_2_13.replace(
        "by PyTorch, and", "by PyTorch, with {} allocated in private pools, and"
    )
    numbers = {"x": "3.00 GiB", "f": "1.00 GiB", "r": "1.00 GiB", "a": "7.00 GiB", "p": "9.00 GiB"}
    for private, kind in (("0.50 GiB", "full"), ("2.00 GiB", "pieces")):
        found = verdict(parsed(text.replace("{}", private).format(**numbers)))
        assert (found.kind, found.certain) == (kind, kind == "full")


def test_a_limit_counts_like_the_card() -> None:
    text = TORCH_2_13.replace("Including", "4.00 GiB allowed; Including")
    numbers = {"f": "6.00 GiB", "r": "0.50 GiB", "a": "3.00 GiB", "p": "4.00 GiB"}
    full = verdict(parsed(text.format(x="2.00 GiB", **numbers)))
    assert (full.kind, full.certain, full.limited) == ("full", True, True)
    pieces = verdict(parsed(text.format(x="0.90 GiB", **numbers)))
    assert (pieces.kind, pieces.certain, pieces.limited) == ("pieces", False, True)


def test_nonsense_of_a_container_is_left_out() -> None:
    numbers = {"x": "3.00 GiB", "f": "1.00 GiB", "r": "1.00 GiB", "a": "6.50 GiB"}
    error = parsed(TORCH_2_13.format(p="17179869184.00 GiB", **numbers))
    assert error.process is None
    assert verdict(error).together is not None


def test_a_device_without_a_number_of_free_bytes() -> None:
    for x, kind in (("4.00 GiB", "full"), ("2.00 GiB", "unknown")):
        found = verdict(parsed(XPU.format(x=x, a="7.00 GiB", r="0.50 GiB")))
        assert (found.kind, found.certain) == (kind, kind == "full")


LLAMA = """llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) - {free} MiB free
load_tensors:        CUDA0 model buffer size =  4403.49 MiB
llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2048.00 MiB on device 0: cudaMalloc failed: out of memory
"""
_FILE = Path(__file__).parents[1] / "data/error_texts.toml"
KNOWN = {
    name: (str(one["text"]), *one["verdict"])
    for name, one in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
}
"""By name: a text, the kind of its verdict, whether it is certain, missing MiB, and a limit."""


@pytest.mark.parametrize("name", KNOWN)
def test_what_a_text_proves(name: str) -> None:
    text, kind, certain, *more = KNOWN[name]
    missing, limited = (*more, None, None)[:2]
    for around in (
        "{}",
        'Traceback (most recent call last):\n  File "a.py", line 3\n{}\n[1] killed\n',
    ):
        found = verdict(parsed(around.replace("{}", text)))
        assert (found.kind, found.certain) == (kind, certain)
        if missing is not None:
            assert found.limited == bool(limited)
            assert found.missing is not None
            assert found.missing.middle / MIB == pytest.approx(missing, abs=0.6)
            assert found.missing.low <= missing * MIB + MIB / 2
            assert found.missing.high >= missing * MIB - MIB / 2


def test_a_model_that_was_loaded_before_does_not_count() -> None:
    earlier = "llama_model_loader: loaded meta data with 30 key-value pairs\n" + LLAMA.format(
        free=7000
    )
    later = "llama_model_loader: loaded meta data with 30 key-value pairs\n" + LLAMA.format(
        free=8000
    )
    assert verdict(parsed(earlier + later)).kind == "unknown"
    unlisted = LLAMA.format(free=7000).partition("\n")
    text = unlisted[2].replace("ggml_backend", f"{unlisted[0]}\nggml_backend")
    assert verdict(parsed(text)).kind == "unknown"


def test_reports_without_an_error() -> None:
    summary = """
    |                  PyTorch CUDA memory summary, device ID 0                 |
    | Allocated memory      |    9216 MB |   14336 MB |   98304 MB |   89088 MB |
    | GPU reserved memory   |   15360 MB |   15360 MB |   15360 MB |       0 B  |
    """
    error = parsed(summary)
    assert (error.message, error.device) == (False, "GPU 0")
    assert error.allocated == Amount(9216 * MIB, 9217 * MIB - 1)
    assert error.unallocated is not None
    assert error.unallocated.low < 6 * GIB < error.unallocated.high
    assert verdict(error).kind == "unknown"
    log = "INFO Available KV cache memory: 12.31 GiB\nINFO Model loading took 14.99 GiB and 4.1 seconds"
    assert [buffer.name for buffer in parsed(log).buffers] == ["weights"]
    assert [name for name, _ in parsed(log).parts] == ["available for the KV cache"]
    assert parse("everything is well; 3.00 GiB free") is None


@pytest.mark.parametrize(
    ("words", "program"),
    [("Out of memory: Killed process 4", "the host"), ("exit status 137", "PyTorch")],
)
def test_only_proof_of_an_ended_process_counts_more_than_a_report(words: str, program: str) -> None:
    report = "MA 4.88 GB         Max_MA 9.77 GB         CA 11.72 GB         Max_CA 16 GB"
    assert parsed(f"{report}\n{words}").program == program


def test_the_last_error_counts() -> None:
    numbers = {"f": "1.00 GiB", "r": "1.50 GiB", "a": "7.00 GiB", "p": "9.00 GiB"}
    text = " ".join(TORCH_2_13.format(x=x, **numbers) for x in ("3.00 GiB", "2.00 GiB"))
    error = parsed(text + "\nRuntimeError: CUDA error: out of memory")
    assert error.errors == 2
    assert error.requested is not None
    assert error.requested.middle // MIB == 2048


def test_more_bytes_than_fit_into_63_bits() -> None:
    text = "out of memory to allocate 1 bytes (total 2 bytes, limit set to {} bytes)"
    assert parsed(text.format(2**63 - 1)).allowed == Amount(2**63 - 1, 2**63 - 1)
    with pytest.raises(TraceError, match="says 9,223,372,036,854,775,808 bytes: more than"):
        parse(text.format(2**63))


@pytest.mark.parametrize(
    "text",
    ["9" * 100_000, "1," * 100_000, "CUDA0 KV buffer size = " * 5_000, "Process 1 has " * 9_000],
)
def test_long_texts_without_an_error(text: str) -> None:
    assert parse(text) is None


OTHERS_USE_IT = (
    "CUDA out of memory. Tried to allocate 12.00 MiB (GPU 0; 20.00 GiB total capacity; 1.00 GiB"
    " already allocated; 8.00 MiB free; {reserved} reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("text", "kind", "certain"),
    [
        # 18.5 GiB of 20 are in use outside of PyTorch, whatever it holds in free blocks.
        (OTHERS_USE_IT.format(reserved="1.50 GiB"), "others", False),
        (OTHERS_USE_IT.format(reserved="1.00 GiB"), "others", False),
        # 8.5 GiB are not most of the card.
        (OTHERS_USE_IT.format(reserved="11.50 GiB"), "pieces", False),
        # The part that is free is no limit of the program: nothing is known of its own memory.
        (TORCH_2_13.format(x="9.00 GiB", f="8.00 GiB", p="1.00 GiB", a="0.80 GiB", r="0.10 GiB"), "full", True),
        ("worker 0: std::bad_alloc: out of memory\n- Free memory: 1231093760\n- Requested memory: 9437184000", "full", True),
        ("Memory allocation error on worker 0\n- Free memory: 1.1GB\n- Requested memory: 512MB", "enough", True),
        ("alloc fail type FlatData dev 0 space Device stream 0x55ab size 25600000000 bytes", "unknown", False),
        ("RuntimeError: GET was unable to find an engine to execute this computation", "unknown", False),
        ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", "unknown", False),
    ],
)  # fmt: skip
def test_who_uses_the_card_and_texts_of_other_libraries(
    text: str, kind: str, certain: bool
) -> None:
    error = parse(text)
    assert error is not None
    found = verdict(error)
    assert (found.kind, found.certain) == (kind, certain)
