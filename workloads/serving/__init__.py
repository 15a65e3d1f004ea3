# SPDX-License-Identifier: Apache-2.0
"""Serving workloads: requests to a language model, as the allocations of the server.

`GENERATORS` draw their requests at random; `read_log` takes them from a log (see `logs`). Both take
the options of a model (`models`) and a server (`server`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from allocbench.base.spec import parse
from allocbench.base.text import definitions
from allocbench.workloads.events import MOST_ALLOCS, Events
from allocbench.workloads.generator import Generator, Option, Value, with_defaults
from allocbench.workloads.serving import models, requests, server
from allocbench.workloads.serving.requests import Requests

if TYPE_CHECKING:
    from allocbench.workloads.trace import Trace

_LOG_OPTIONS = (
    Option("requests", "count", 0, "use only the first N requests; 0 for all", least=0),
    Option("speed", "number", 1.0, "arrival rate relative to the log", least=1e-6),
    Option(
        "most_allocs", "count", 3_000_000, "refuse a log that needs more allocs", most=MOST_ALLOCS
    ),
)
LOG_OPTIONS = (*models.OPTIONS, *server.OPTIONS, *_LOG_OPTIONS)
"""The options of a log of requests."""
_REMEDY = (
    f"use the first N requests (requests=N), or raise most_allocs (to {MOST_ALLOCS:,} at most)"
)


def read_log(file: BinaryIO, path: Path, **given: Value) -> Trace:
    """The allocations of a server that answers the requests in an open log.

    given: values of LOG_OPTIONS. Raises TraceError for invalid values or an unreadable log.
    """
    from allocbench.workloads.serving import logs

    def write(
        events: Events, requests: int, speed: float, most_allocs: int, **values: Any
    ) -> Mapping[str, Any]:
        events.limit(most_allocs, _REMEDY)
        return _serve(events, logs.read(file).first(requests, speed), values)

    log = Generator(path.stem, "serving", "", path.name, LOG_OPTIONS, write)
    return log.trace(given)


def _drawn(events: Events, **values: Any) -> Mapping[str, Any]:
    of_requests = {option.name: values.pop(option.name) for option in requests.OPTIONS}
    return _serve(events, requests.RandomRequests(**of_requests).draw(), values)


def _serve(events: Events, asked: Requests, values: dict[str, Any]) -> Mapping[str, Any]:
    """Serve requests with the given values of the model's and server's options."""
    model = models.model_of(values)
    counts = server.serve(events, model, server.ServerSettings(**values), asked)
    told = {"model": asdict(model), "served": asdict(counts)}
    return told | ({"note": asked.rule} if asked.rule else {})


_GENERATORS = """
serve-chat
    chats on Llama-3-8B with contiguous KV blocks that grow by concatenation;
    Poisson arrivals, log-normal lengths
serve-paged:kv=paged
    the same chats with KV pages of 16 tokens;
    Poisson arrivals, log-normal lengths
serve-bursts-70b:model=llama-3-70b,growth=double,layer_group=20,burstiness=4
    one of four GPUs of Llama-3-70B under bursts, contiguous KV blocks that double;
    gamma arrivals, log-normal lengths
serve-long-prefix:model=qwen2.5-7b,kv=paged,page=64,prompt=2000,longest=32768,prefixes=12,
  prefix_tokens=16384,rate=2,kv_budget=6GiB
    long prompts with common prefixes on Qwen2.5-7B, pages of the prefixes shared;
    Poisson arrivals, log-normal lengths, beginnings by Zipf's law
serve-preempt:rate=20,output=300,kv_budget=4GiB
    more chats than fit on Llama-3-8B: sequences are preempted and recomputed;
    Poisson arrivals, log-normal lengths
"""
"""Each with the options that differ from the defaults; what it is; what its requests are."""


def _listed() -> Iterator[Generator]:
    options = {one.name: one for one in (*models.OPTIONS, *server.OPTIONS, *requests.OPTIONS)}
    for head, told in definitions(_GENERATORS):
        spec, (summary, source) = parse(head.replace(" ", "")), told.split("; ")
        defaults = {name: options[name].read(text) for name, text in spec.options.items()}
        of_it = with_defaults(options.values(), defaults)
        yield Generator(spec.name, "serving", summary, source, of_it, _drawn)


GENERATORS = tuple(_listed())
