# SPDX-License-Identifier: Apache-2.0
"""What the text of an out-of-memory error says, as numbers.

The text may be a whole log with tracebacks; of several errors, the last one that says what was free
counts. Lines may begin with the marks of a quotation, times, ranks or names of processes, and a
message may be a string of JSON. Programs round the numbers that they print, so each is a range. The
wordings are those of PyTorch 0.4 to 2.15 (CUDA, ROCm, XPU, MPS and Ascend), of its
`memory_summary()` and `memory_stats()`, also as DeepSpeed and Megatron print them, JAX and XLA,
TensorFlow's BFC allocator, ONNX Runtime's arena, CuPy, RMM, Numba, XGBoost, Faiss, TensorRT,
Paddle, MLX, vLLM, SGLang, llama.cpp, Ollama, Triton, and of Ray or a system that ends a process.
Of other programs, the usual words for memory that ran out are known.
"""

import re
from dataclasses import fields, replace

from allocbench.base.error_text import HOST, Amount, ErrorText
from allocbench.workloads.error_texts import bfc, pytorch, servers_and_libraries, xla
from allocbench.workloads.error_texts.bfc import state
from allocbench.workloads.vocabulary import MAX_SIZE, TraceError

__all__ = ["Amount", "ErrorText", "parse", "state"]

_ESCAPES = re.compile(r"(?:\x1b|\\u001b)\[[0-9;?]{0,12}[a-zA-Z]|\[[0-9;]{1,12}m")
_LINES_IN_JSON, _QUOTES_IN_JSON = re.compile(r"\\{1,9}[nrt]"), re.compile(r'\\{1,9}(?=")')
_BEGIN_OF_LINE = re.compile(
    r"""^[ \t]*(?:(?:
      >                                                     # a quotation
      | [\w.-]{1,60}[ ]{0,20}\|(?=[ ])                      # docker compose
      | \[(?:default|rank|Rank[ ])?\d{1,5}\]:?              # ranks
      | (?:rank|Rank[ ])?\d{1,5}:(?=[ ]|$)
      | \[\d{1,5},\d{1,5}\]<\w{3,6}>:                       # Open MPI
      | \([\w =]{0,60}pid=\d+[^)\n]{0,60}\)                # Ray, vLLM
      | (?:INFO|WARNING|ERROR)[ ]\d\d-\d\d[ ]\d\d:\d\d:\d\d[ ]\[?[\w./]{1,60}:\d+\]
      | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[\d.,]{0,12}       # Kubernetes
        (?:Z|[+-]\d\d:?\d\d)?(?:[ ]std(?:out|err)[ ][FP])?(?=[ ])
      | \w{3}[ ]+\d{1,2}[ ]\d\d:\d\d:\d\d[ ]\S{1,60}[ ]\S{1,60}\[\d+\]:  # the journal
    )[ \t]*)+""",
    re.VERBOSE | re.MULTILINE,
)


def parse(text: str) -> ErrorText | None:
    """The last error in a text, or the last report of memory in use; None if it has neither.

    Raises TraceError if it says more bytes than fit into 63 bits.
    """
    plain = " ".join(_BEGIN_OF_LINE.sub("", _ESCAPES.sub("", text)).split())
    if "\\" in plain:
        plain = " ".join(_LINES_IN_JSON.sub(" ", _QUOTES_IN_JSON.sub("", plain)).split())
    plain += " " * text[-1:].isspace()  # a number at the end of a text may be cut
    found = [item for reader in _READERS for item in reader(plain)]
    others = (list(reader(plain)) for reader in servers_and_libraries.OF_OTHERS)
    found = found or next(filter(None, others), [])
    errors = [item for item in found if item[1].message]
    if not found:
        return None
    last = max(errors or found, key=_substance)[1]
    _refuse_more_than_memory(last)
    if last.device == HOST and not last.requested:  # several lines tell of one process that ended
        return last
    return replace(last, errors=sum(one.program == last.program for _, one in errors) or 1)


def _refuse_more_than_memory(error: ErrorText) -> None:
    told = [getattr(error, field.name) for field in fields(error)]
    named = [amount for _, amount in (*error.parts, *error.others)]
    sizes = [*named, *(buffer.size for buffer in error.buffers), *told]
    most = max(
        max((size.high for size in sizes if isinstance(size, Amount)), default=0),
        sum(segment.size for segment in error.segments),
    )
    if most > MAX_SIZE:
        raise TraceError(f"the text of the error says {most:,} bytes: more than {MAX_SIZE:,}")


def _substance(found: tuple[int, ErrorText]) -> tuple[int, int]:
    """The order of errors: one that says what was free counts most, then the last one."""
    position, error = found
    room = error.free or error.total or error.allowed or error.needed or error.tokens
    return (2 if room else 1 if error.requested or error.parts else 0), position


_READERS = (*pytorch.READERS, xla.xla, *bfc.READERS, *servers_and_libraries.READERS)
