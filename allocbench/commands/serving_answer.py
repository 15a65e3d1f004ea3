# SPDX-License-Identifier: Apache-2.0
"""The output of `serving`: sentences, a table of what fills a card, and JSON.

With --run, also what a server measures on null GPUs, beside what is computed without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from allocbench.base import units
from allocbench.base.cards import Card
from allocbench.base.errors import UserError
from allocbench.base.text import command_text
from allocbench.errors import UsageError
from allocbench.inputs.devices import recorded_on
from allocbench.null_gpu.device import read
from allocbench.output.files import STDOUT, check_outputs, write_json, written
from allocbench.output.terminal import console, plain_table, say
from allocbench.programs import server_start
from allocbench.programs.server_start import ServerRun
from allocbench.questions.occupancy import Outside
from allocbench.questions.serving import CardParts, Server
from allocbench.questions.serving_load import Load
from allocbench.workloads.serving import architectures, engines, start_logs
from allocbench.workloads.serving.engines import SGLANG
from allocbench.workloads.serving.start_logs import ServerStart

_MIB = 1 << 20
_GPUS = 8  # that the server sees, as in most machines with several
_VERSIONS = (((0, 21), engines.VLLM), ((0, 17), engines.VLLM_17), ((0, 8), engines.VLLM_11))
_SGLANG = "SGLang"


def told(model: str, found: CardParts, served: Load | None) -> dict[str, Any]:
    """The answer as JSON has it."""
    asked = found.asked
    return {
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
        "asleep": asdict(found.asleep),
        "log": served and asdict(served) | {"fraction": found.share_for(served.needed_tokens)},
    }


def show(model: str, found: CardParts, served: Load | None, longest: int) -> None:
    """Print the answer in sentences, and the table of the card.

    longest: tokens of the longest sequence.
    """
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
    say(_sentences(found, served, longest))
    console().print()
    console().print(table)


def _sentences(found: CardParts, served: Load | None, longest: int) -> list[str]:
    asked = found.asked
    name = "mem-fraction-static" if asked.engine == SGLANG else "gpu_memory_utilization"
    block = units.count(asked.block_tokens, "token")
    lines = [
        f"KV cache: {found.blocks:,} blocks of {block}, {found.tokens:,} tokens:"
        f" {found.tokens / longest:.2f} sequences of {longest:,} tokens."
        + ("" if found.tokens >= longest else f" {asked.engine} refuses requests that need more."),
        f"{name} {asked.share:g}; everything fits up to {found.largest_share:g}.",
        _asleep(found),
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
    lines.append(
        f"a KV cache that grows in pages (kvcached): at most {units.size(served.growing)} mapped,"
        f" {units.size(served.growing_mean)} on average; {units.size(found.size('KV cache'))} are"
        " taken at the start without it."
    )
    return lines


def _asleep(found: CardParts) -> str:
    stays, host = found.asleep.stays, units.size(found.asleep.host)
    back = units.size(sum(line.size for line in found.lines) - stays)
    keeps = f"the host holds {host} of weights"
    sleeps, keeps = (
        ("--enable-memory-saver", f"with --enable-weights-cpu-backup, {keeps}")
        if found.asked.engine == SGLANG
        else ("--enable-sleep-mode", f"at level 1, {keeps}, at level 2 none")
    )
    return f"asleep ({sleeps}): {back} are given back, {units.size(stays)} stay used; {keeps}."


def _rate(largest: float | None) -> str:
    if largest is None:
        return "none that was tried"
    if largest == float("inf"):
        return "more than 1,024 times that rate (max-num-seqs is the limit, not memory)"
    return f"{largest:.2f} times that rate"


def run(
    command: Sequence[str], device: str, outside: Outside, limit: float, json: str | None
) -> None:
    """Start a server, and show or write what it printed and what is computed.

    limit: seconds until it must be ready. Raises UserError.
    """
    check_outputs(json)
    null = recorded_on(device)
    if null is None:
        raise UsageError(f"--device {device}: no null GPU; write the name of a card, such as h100")
    null += "" if "count=" in null else f",count={_GPUS}"
    card = read(null).card
    ran = server_start.run(command, null, limit)
    start = start_logs.read("\n".join(ran.lines))
    server = _server(start, card, replace(outside, ranks=start.tensor_parallel))
    try:
        computed = server.answer()[0]
        difference = computed.tokens / start.kv_tokens - 1
        note = (
            f"Computed without the start: {computed.tokens:,} tokens ({100 * difference:+.1f} %)."
        )
    except UserError as error:
        computed, note = None, f"Not computed without the start: {error}."
    rows = _rows(start, server, computed)
    answer = {
        "command": command_text(command),
        "device": null,
        "start": asdict(start) | {"reserved": ran.reserved},
        "lines": [{"part": part} | dict(sizes) for part, sizes in rows.items()],
        "computed": computed and told(server.model, computed, None),
        "note": note,
    }
    write = partial(write_json, answer)
    with written({json: write}, ".json", write):
        if json != STDOUT:
            _show_run(start, ran, card, rows, note)


def _server(start: ServerStart, card: Card, outside: Outside) -> Server:
    listed = start.model.rpartition("/")[2].lower()
    known = not Path(start.model).exists() and listed in architectures.LISTED
    quantization = start.quantization if start.quantization in architectures.QUANTIZATIONS else None
    by_version = (name for least, name in _VERSIONS if start.version >= least)
    return Server(
        listed if known else start.model,
        engines.SGLANG if start.engine == _SGLANG else next(by_version, engines.VLLM_0),
        card,
        outside,
        start.share,
        quantization,
        start.kv_dtype.startswith("fp8"),
        start.block_tokens,
        start.positions,
        start.tokens,
        start.rows,
        start.captured,
    )


def _rows(
    start: ServerStart, server: Server, computed: CardParts | None
) -> Mapping[str, Mapping[str, int]]:
    """Bytes by part of the card, each as the server printed it and as it is computed."""
    parts = server.outside.parts(server.card)
    lines = {"other processes": parts["other"], "context and libraries": parts["context"]}
    lines |= {"NCCL": parts["nccl"]}
    if computed is not None:
        lines = {line.name: line.size for line in computed.lines}
    printed = {"weights": start.weights, "activations": start.activations}
    printed |= {"KV cache": start.cache, "graphs: pool": start.graphs}
    rows = dict[str, dict[str, int]]()
    for name in dict.fromkeys((*lines, *printed)):
        sizes = {"printed": printed.get(name), "computed": lines.get(name)}
        rows[name] = {column: size for column, size in sizes.items() if size is not None}
    return rows


def _show_run(
    start: ServerStart, ran: ServerRun, card: Card, rows: Mapping[str, Mapping[str, int]], note: str
) -> None:
    name = " ".join(filter(None, (start.engine, ".".join(map(str, start.version)))))
    of = f", one of {start.tensor_parallel} GPUs" if start.tensor_parallel > 1 else ""
    title = f"what fills {card.name}{of} with {name}: {start.model}"
    table = plain_table(title, "part", "printed", "computed", right=("printed", "computed"))
    for part, sizes in rows.items():
        cells = (units.size(sizes[one]) if one in sizes else "" for one in ("printed", "computed"))
        table.add_row(part, *cells)
    taken = sum(sizes.get("printed", sizes.get("computed", 0)) for sizes in rows.values())
    left = card.usable - taken
    table.add_row("left" if left >= 0 else "too little", units.size(abs(left)), "")
    reserved, whole = units.size(ran.reserved), units.size(card.usable)
    ready = (
        f"{name} was ready after {ran.seconds:.0f} s. Its KV cache has room for"
        f" {start.kv_tokens:,} tokens: {start.kv_tokens / start.positions:.2f} sequences of"
        f" {start.positions:,} tokens."
    )
    say([ready, f"PyTorch reserved at most {reserved} on a GPU of {whole}.", note])
    console().print()
    console().print(table)
