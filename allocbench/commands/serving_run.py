# SPDX-License-Identifier: Apache-2.0
"""`serving --run`: what a server measures on null GPUs, beside what is computed without it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from rich.text import Text

from allocbench.base import units
from allocbench.base.cards import Card
from allocbench.base.errors import UserError
from allocbench.base.text import command_text
from allocbench.commands import serving_answer
from allocbench.commands.server import Server
from allocbench.errors import UsageError
from allocbench.inputs.devices import recorded_on
from allocbench.null_gpu.device import read
from allocbench.output.files import STDOUT, check_outputs, write_json, written
from allocbench.output.terminal import console, plain_table
from allocbench.programs import server_start
from allocbench.programs.server_start import ServerRun
from allocbench.questions.occupancy import Outside
from allocbench.questions.serving import CardParts
from allocbench.workloads.serving import architectures, engines, start_logs
from allocbench.workloads.serving.start_logs import ServerStart

_GPUS = 8  # that the server sees, as in most machines with several
_VERSIONS = (((0, 21), engines.VLLM), ((0, 17), engines.VLLM_17), ((0, 8), engines.VLLM_11))
_SGLANG = "SGLang"


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

    def write(path: str) -> None:
        told = {
            "command": command_text(command),
            "device": null,
            "start": asdict(start) | {"reserved": ran.reserved},
            "lines": [{"part": part} | dict(sizes) for part, sizes in rows.items()],
            "computed": computed and serving_answer.told(server.model, computed, None),
            "note": note,
        }
        write_json(told, path)

    with written({json: write}, ".json", write):
        if json != STDOUT:
            _show(start, ran, card, rows, note)


def _server(start: ServerStart, card: Card, outside: Outside) -> Server:
    """The server that a start is of."""
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


def _show(
    start: ServerStart,
    ran: ServerRun,
    card: Card,
    rows: Mapping[str, Mapping[str, int]],
    note: str,
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
    whole = units.size(card.usable)
    out = console()
    for sentence in (
        f"{name} was ready after {ran.seconds:.0f} s. Its KV cache has room for"
        f" {start.kv_tokens:,} tokens: {start.kv_tokens / start.positions:.2f} sequences of"
        f" {start.positions:,} tokens.",
        f"PyTorch reserved at most {units.size(ran.reserved)} on a GPU of {whole}.",
        note,
    ):
        out.print(Text(sentence))
    out.print()
    out.print(table)
