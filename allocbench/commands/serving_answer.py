# SPDX-License-Identifier: Apache-2.0
"""The output of `serving`: sentences, a table of what fills a card, and JSON."""

from dataclasses import asdict
from typing import Any

from rich.text import Text

from allocbench.base import units
from allocbench.output.files import write_json
from allocbench.output.terminal import console, plain_table
from allocbench.questions.serving import CardParts
from allocbench.questions.serving_load import Load
from allocbench.workloads.serving.engines import SGLANG

_MIB = 1 << 20


def write(model: str, found: CardParts, served: Load | None, path: str) -> None:
    """Write the answer as JSON; - is standard output."""
    write_json(told(model, found, served), path)


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
    out = console()
    for sentence in _sentences(found, served, longest):
        out.print(Text(sentence))
    out.print()
    out.print(table)


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
