# SPDX-License-Identifier: Apache-2.0
"""allocbench serving: what fills a card on which vLLM or SGLang serves a model."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from allocbench import options
from allocbench.base.spec import SpecSyntaxError, parse_numbers
from allocbench.errors import UsageError
from allocbench.keeping import written
from allocbench.outputs import STDOUT, check_outputs, open_output
from allocbench.reports import units
from allocbench.terminal import console, plain_table

if TYPE_CHECKING:
    from allocbench.questions.serving import Answer, Asked
    from allocbench.questions.serving_load import Load
    from allocbench.workloads.serving.requests import Requests

EXAMPLES = (
    "allocbench serving llama-3.1-8b --card h100-sxm-80gb",
    "allocbench serving config.json --card l4 --max-model-len 8192 --max-num-seqs 64",
    "allocbench serving qwen3-32b --tensor-parallel 2 --log requests.csv",
    "allocbench serving llama-3.1-70b --card h200 --engine sglang --quantization fp8 --json -",
)
_MIB = 1 << 20


class Engine(StrEnum):
    """The servers whose rules are known."""

    VLLM = "vllm"
    VLLM_11 = "vllm-0.11"
    VLLM_0 = "vllm-v0"
    SGLANG = "sglang"


class Weights(StrEnum):
    """How matrices of weights are stored."""

    NONE = "none"
    FP8 = "fp8"
    INT8 = "int8"
    INT4 = "int4"


class Cache(StrEnum):
    """How keys and values are stored."""

    AUTO = "auto"
    FP8 = "fp8"


_MOST_SIZES = 10_000  # of captured graphs
_OPTION_NAMES = {
    Engine.VLLM: "gpu_memory_utilization",
    Engine.VLLM_11: "gpu_memory_utilization",
    Engine.VLLM_0: "gpu_memory_utilization",
    Engine.SGLANG: "mem-fraction-static",
}


def run(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL|CONFIG",
            help="A listed model, such as llama-3.1-8b, or a model's config.json or its folder.",
        ),
    ],
    card: Annotated[
        str, typer.Option(metavar="NAME", help="The card, as in `list devices`.")
    ] = "h100-sxm-80gb",
    engine: Annotated[
        Engine,
        typer.Option(
            help="The server: vllm from 0.21 on, vllm-0.11 for V1 before that, vllm-v0 for the"
            " engine before V1."
        ),
    ] = Engine.VLLM,
    fraction: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            min=0.01,
            max=1,
            help="vLLM's gpu_memory_utilization (default: 0.92, before 0.21: 0.9) or SGLang's"
            " mem-fraction-static (default: its rule).",
        ),
    ] = None,
    tensor_parallel: Annotated[
        int, typer.Option(metavar="N", min=1, max=64, help="GPUs that share the model.")
    ] = 1,
    quantization: Annotated[
        Weights | None,
        typer.Option(
            help="How weight matrices are stored; int4 is the format of AWQ and GPTQ. Default: as"
            " in the model's config."
        ),
    ] = None,
    kv_dtype: Annotated[
        Cache,
        typer.Option(help="How keys and values are stored; auto: in the data type of the model."),
    ] = Cache.AUTO,
    block_size: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            min=1,
            max=4096,
            help="Tokens in a block of the KV cache. Default: 16; SGLang: 1.",
        ),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(metavar="TOKENS", min=1, help="The longest sequence; default: the model's."),
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="TOKENS",
            min=1,
            max=10**6,
            help="The most tokens in a pass; default: the engine's rule.",
        ),
    ] = None,
    max_num_seqs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            max=10**5,
            help="The most sequences in a pass; default: the engine's rule.",
        ),
    ] = None,
    capture_sizes: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...|none",
            help="Batch sizes that have a CUDA graph; default: the engine's rule.",
        ),
    ] = None,
    context: options.Context = None,
    nccl: options.Nccl = None,
    other: options.Other = "0",
    log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A log of requests (see `list formats`) for the server to answer.",
        ),
    ] = None,
    requests: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Use the first N requests of the log; 0 for all."),
    ] = 1000,
    json: options.Json = None,
) -> None:
    """Show what fills a card when vLLM or SGLang serves a model on it, and the share to give it.

    The lines are the memory outside of PyTorch, the weights, the activations of the largest batch,
    the KV cache, the pools of CUDA graphs and what the allocator wastes. Each is exact, replayed,
    modelled or given. With a log of requests, the command also shows how large a KV cache these
    requests need, and the highest arrival rate at which no sequence is preempted or refused.
    """
    from allocbench.questions.serving import answer  # imported late: --help stays fast
    from allocbench.questions.serving_load import load

    check_outputs(json)
    sizes = (
        options.bytes_of("--context", context),
        options.bytes_of("--other", other) or 0,
        tensor_parallel,
        options.bytes_of("--nccl", nccl),
    )
    asked, longest = _asked(
        model=model,
        card=card,
        engine=engine,
        fraction=fraction,
        stored=(tensor_parallel, quantization, kv_dtype),
        block_size=block_size,
        longest=max_model_len,
        limits=(max_num_batched_tokens, max_num_seqs, _sizes(capture_sizes)),
        outside=sizes,
    )
    found = answer(asked)
    served = None if log is None else load(found, _requests(log, requests), longest)
    write = partial(_write, model, found, served)
    with written({json: write} if json else {}, ".json", write):
        if json != STDOUT:
            _print(model, found, served, longest)


def _asked(
    *,
    model: str,
    card: str,
    engine: Engine,
    fraction: float | None,
    stored: tuple[int, Weights | None, Cache],
    block_size: int | None,
    longest: int | None,
    limits: tuple[int | None, int | None, tuple[int, ...] | None],
    outside: tuple[int | None, int, int, int | None],
) -> tuple[Asked, int]:
    """The server that the options describe, and the tokens of its longest sequence."""
    from pathlib import Path

    from allocbench.questions.occupancy import Outside
    from allocbench.questions.serving import Asked
    from allocbench.workloads.serving import architectures, engines, model_configs

    if model in architectures.LISTED or not Path(model).exists():
        whole = architectures.listed(model)
    else:
        whole = model_configs.read(Path(model))
    ranks, weights, cache = stored
    divided = architectures.divided(
        whole,
        architectures.Stored(
            tensor_parallel=ranks,
            quantization=weights,
            kv_bytes=1 if cache is Cache.FP8 else None,
        ),
    )
    chosen = options.card_of(f"--card {card}", card)
    most = longest or whole.positions
    if most > whole.positions:
        raise UsageError(f"--max-model-len {most:,}: the model has {whole.positions:,} positions")
    batch = engines.batch(
        engine,
        chosen.usable,
        most,
        ranks=ranks,
        small_batches="a100" in chosen.name.lower(),
        tokens=limits[0],
        rows=limits[1],
        captured=limits[2],
    )
    default = 1 if engine is Engine.SGLANG else 16
    share = fraction or engines.share(engine, chosen.usable, ranks, batch)
    asked = Asked(divided, engine, chosen, batch, block_size or default, share, Outside(*outside))
    return asked, most


def _sizes(text: str | None) -> tuple[int, ...] | None:
    """The sizes of --capture-sizes; raises UsageError."""
    if text is None or text == "none":
        return None if text is None else ()
    try:
        sizes = parse_numbers(text)
    except SpecSyntaxError:
        sizes = ()
    if not 1 <= len(sizes) <= _MOST_SIZES or min(sizes) < 1:
        raise UsageError(f"--capture-sizes {text}: write whole numbers, such as 1,2,4,8, or none")
    return tuple(sorted(set(sizes)))


def _requests(path: str, count: int) -> Requests:
    """The first requests of a log; raises TraceError naming the file."""

    from allocbench.workloads.input_files import open_input
    from allocbench.workloads.serving import logs

    with open_input(path) as (file, _):
        return logs.read(file).first(count, 1.0)


def _write(model: str, found: Answer, served: Load | None, path: str) -> None:
    asked = found.asked
    told = {
        "model": model,
        "card": asked.card.name,
        "engine": str(asked.engine),
        "fraction": asked.share,
        "max_num_batched_tokens": asked.batch.tokens,
        "max_num_seqs": asked.batch.rows,
        "capture_sizes": asked.batch.captured,
        "block_size": asked.block_tokens,
        "lines": [{"part": line.name, "bytes": line.size, "how": line.how} for line in found.lines],
        "left": found.left,
        "kv_blocks": found.blocks,
        "kv_tokens": found.tokens,
        "largest_fraction": found.largest_share,
        "log": served and asdict(served) | {"fraction": found.share_for(served.needed_tokens)},
    }
    with open_output(path) as sink:
        sink.write(json_text.dumps(told, indent=1).encode() + b"\n")


def _print(model: str, found: Answer, served: Load | None, longest: int) -> None:
    asked = found.asked
    ranks = asked.outside.ranks
    gpus = f", one of {ranks} GPUs" if ranks > 1 else ""
    title = f"what fills {asked.card.name}{gpus} with {asked.engine}: {model}"
    table = plain_table(title, "part", "bytes", "MiB", "", "", right=("bytes", "MiB"))
    for line in found.lines:
        table.add_row(
            line.name, units.size(line.size), f"{line.size / _MIB:,.0f}", line.how, line.note
        )
    name = "left" if found.left >= 0 else "too little"
    left = abs(found.left)
    usable = f"of {units.size(asked.card.usable)} usable"
    table.add_row(name, units.size(left), f"{left / _MIB:,.0f}", "", usable)
    out = console()
    out.print(table)
    for sentence in _sentences(found, served, longest):
        out.print(Text(sentence))


def _sentences(found: Answer, served: Load | None, longest: int) -> list[str]:
    asked = found.asked
    name = _OPTION_NAMES[Engine(asked.engine)]
    block = units.count(asked.block_tokens, "token")
    lines = [
        f"KV cache: {found.blocks:,} blocks of {block}, {found.tokens:,} tokens:"
        f" {found.tokens / longest:.2f} sequences of {longest:,} tokens.",
        f"{name} {asked.share:g}; everything fits up to {found.largest_share:g}.",
    ]
    if served is None:
        return lines
    at_rate = served.at_rate
    needed = found.share_for(served.needed_tokens)
    lines.append(
        f"log: {served.requests:,} requests in {units.seconds(served.seconds)}, at most"
        f" {served.needed_tokens:,} tokens at once: {name} {needed:g} would be enough"
        + (f"; {served.too_long:,} longer requests left out." if served.too_long else ".")
        if needed <= found.largest_share
        else f"log: {served.requests:,} requests in {units.seconds(served.seconds)} need a KV cache"
        f" of {served.needed_tokens:,} tokens, more than fits on this card."
    )
    lines.append(
        f"at its own rate: {units.count(at_rate.preemptions, 'preemption')},"
        f" {units.count(at_rate.rejected, 'request')} refused; largest load without either:"
        f" {_rate(served.largest)}."
    )
    return lines


def _rate(largest: float | None) -> str:
    if largest is None:
        return "none that was tried"
    if largest == float("inf"):
        return "more than 1,024 times that rate (max-num-seqs is the limit, not memory)"
    return f"{largest:.2f} times that rate"
