# SPDX-License-Identifier: Apache-2.0
"""allocbench serving: what fills a card on which vLLM or SGLang serves a model."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from allocbench.base.spec import SpecSyntaxError, parse_numbers
from allocbench.commands import options
from allocbench.errors import UsageError
from allocbench.inputs.devices import card_of
from allocbench.output.files import STDOUT, check_outputs, write_json, written

if TYPE_CHECKING:
    from allocbench.workloads.serving.requests import Requests

EXAMPLES = (
    "allocbench serving llama-3.1-8b --device h100-sxm-80gb",
    "allocbench serving config.json --device l4 --max-model-len 8192 --max-num-seqs 64",
    "allocbench serving qwen3-32b --tensor-parallel 2 --log requests.csv",
    "allocbench serving llama-3.1-70b --device h200 --engine sglang --quantization fp8 --json -",
    "allocbench serving --run --device l4 -- vllm serve MODEL --load-format dummy",
)
_BY_THE_SERVER = (
    *("engine", "fraction", "tensor_parallel", "quantization", "kv_dtype", "block_size"),
    *("max_model_len", "max_num_batched_tokens", "max_num_seqs", "capture_sizes"),
    *("log", "requests"),
)
"""Options for which the command of a server has its own."""


_MOST_SIZES = 10_000  # of captured graphs
_TIMEOUT = 900.0  # seconds


def run(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="MODEL|CONFIG|-- SERVER...")],
    device: Annotated[str, typer.Option(metavar="NAME")] = "h100-sxm-80gb",
    engine: Literal["vllm", "vllm-0.17", "vllm-0.11", "vllm-v0", "sglang"] = "vllm",
    fraction: Annotated[float | None, typer.Option(metavar="SHARE", min=0.01, max=1)] = None,
    tensor_parallel: Annotated[int, typer.Option(metavar="N", min=1, max=64)] = 1,
    quantization: Literal["none", "fp8", "int8", "int4"] | None = None,
    kv_dtype: Literal["auto", "fp8"] = "auto",
    block_size: Annotated[int | None, typer.Option(metavar="TOKENS", min=1, max=4096)] = None,
    max_model_len: Annotated[int | None, typer.Option(metavar="TOKENS", min=1)] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=1, max=10**6)
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(metavar="N", min=1, max=10**5)] = None,
    capture_sizes: Annotated[str | None, typer.Option(metavar="N,N,...|none")] = None,
    context: options.Context = None,
    nccl: options.Nccl = None,
    other: options.Other = 0,
    log: Annotated[str | None, typer.Option(metavar="FILE")] = None,
    requests: Annotated[int, typer.Option(metavar="N", min=0)] = 1000,
    start: Annotated[bool, typer.Option("--run")] = False,
    timeout: options.Timeout = None,
    json: options.Json = None,
) -> None:
    """Show what fills a card when vLLM or SGLang serves a model on it, and the share to give it.

    The lines are the memory outside of PyTorch, the weights, the activations of the largest batch,
    the KV cache, the pools of CUDA graphs and what the allocator wastes. Each is replayed,
    modelled or given. With a log of requests, the command also shows how large a KV cache these
    requests need, and the highest arrival rate at which no sequence is preempted or refused.

    With --run, the engine itself starts on null GPUs, with --load-format dummy instead of weights,
    and its own numbers are beside the computed ones.

    Options:
        words: A listed model, such as llama-3.1-8b, or a model's config.json or its folder; with
            --run, the command of a server.
        device: The card, as in `list devices`.
        engine: The server: vllm from 0.21 on, vllm-0.17 from 0.17 on, vllm-0.11 for V1 before that,
            vllm-v0 for the engine before V1.
        fraction: vLLM's gpu_memory_utilization (default: 0.92, before 0.21: 0.9) or SGLang's
            mem-fraction-static (default: its rule).
        tensor_parallel: GPUs that share the model.
        quantization: How weight matrices are stored; int4 is the format of AWQ and GPTQ. Default:
            as in the model's config.
        kv_dtype: How keys and values are stored; auto: in the data type of the model.
        block_size: Tokens in a block of the KV cache. Default: 16; SGLang: 1.
        max_model_len: The longest sequence; default: the model's.
        max_num_batched_tokens: The most tokens in a pass; default: the engine's rule.
        max_num_seqs: The most sequences in a pass; default: the engine's rule.
        capture_sizes: Batch sizes that have a CUDA graph; default: the engine's rule.
        log: A log of requests (see `list formats`) for the server to answer.
        requests: Use the first N requests of the log; 0 for all.
        start: Start the server that follows -- on null GPUs until it is ready, and show what it
            measures.
    """
    from allocbench.commands import serving_answer  # imported late: --help stays fast
    from allocbench.questions.occupancy import Outside
    from allocbench.questions.serving import Server
    from allocbench.questions.serving_load import load

    check_outputs(json)
    if start:
        for name in _BY_THE_SERVER:
            source = ctx.get_parameter_source(name)
            if source is not None and source.name == "COMMANDLINE":
                raise UsageError(f"--{name.replace('_', '-')}: with --run, the server has its own")
        outside = Outside(context=context, other=other, nccl=nccl)
        serving_answer.run(words, device, outside, timeout or _TIMEOUT, json)
        return
    if timeout is not None:
        raise UsageError("--timeout is for --run")
    if len(words) > 1:
        raise UsageError(f"{' '.join(words)}: expected one model; a server's command needs --run")
    chosen = card_of(f"--device {device}", device)
    server = Server(
        words[0],
        engine,
        chosen,
        Outside(context=context, other=other, ranks=tensor_parallel, nccl=nccl),
        fraction,
        quantization,
        kv_dtype == "fp8",
        block_size,
        max_model_len,
        max_num_batched_tokens,
        max_num_seqs,
        _sizes(capture_sizes),
    )
    found, longest = server.answer()
    served = None if log is None else load(found, _requests(log, requests), longest)
    write = partial(write_json, serving_answer.told(words[0], found, served))
    with written({json: write}, ".json", write):
        if json != STDOUT:
            serving_answer.show(words[0], found, served, longest)


def _sizes(text: str | None) -> tuple[int, ...] | None:
    """The sizes of --capture-sizes; raises UsageError."""
    if text is None:
        return None
    if text == "none":
        return ()
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
