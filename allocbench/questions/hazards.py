# SPDX-License-Identifier: Apache-2.0
"""Settings that break something that a program does, by reports of users of PyTorch and vLLM.

A recording names the features that its program used (workloads/recording_hook.py). Other traces do
not say; the possibility is then reported as a caveat.
"""

from collections.abc import Sequence

from allocbench.allocators import SpecError
from allocbench.questions.growth import growing_reserve, leak_of, reserve_sentence, sentence
from allocbench.replays.recorded_settings import conf, in_force
from allocbench.replays.runner import Runner, innermost
from allocbench.workloads import Trace
from allocbench.workloads.pytorch_settings import PytorchRules

FEATURES = "features"
"""Key in a provenance's `extra`: the features that the program used."""
_EXPANDABLE = "expandable_segments:True"
_RESET = ("max_split_size_mb", "roundup_power2_divisions", "garbage_collection_threshold")
_POOLS_WORK = next(rules.since for rules in PytorchRules.sets() if rules.allocates_from_pools)
_BREAKS = {
    "cuda_ipc": (
        "the program shares CUDA memory between processes, and cudaIpcGetMemHandle fails on"
        " expandable segments (vllm-project/vllm#42609)"
    ),
    "mem_pool": (
        "the program uses a MemPool with an allocator of its own, which does not work with"
        f" expandable segments before PyTorch {_POOLS_WORK} (pytorch/pytorch#147851)"
    ),
}
"""Features that expandable segments break, and why."""
_CUSTOM_ALL_REDUCE = (
    "the program imports a custom all-reduce: if it is used, expandable segments can break it"
    " (vllm-project/vllm#42609); disable one of the two"
)
_NOT_KNOWN = (
    "the trace does not say whether the program uses CUDA IPC, a custom all-reduce or a MemPool"
    " with an allocator of its own, which expandable segments can break"
)
_STRANDS = (
    " max_split_size_mb with expandable_segments does that: larger blocks are not split"
    " (pytorch/pytorch#193400). Drop one of the two."
)
_MODEL = (
    "on a simulated device, the pool of cuda_async is a model; in 13 replays it reserves from 3.6%"
    " less to 12.9% more than on an H100 (docs/devices.md)"
)
_RESETS = (
    "the program changes allocator settings while it runs, and PyTorch then resets {names} if the"
    " change does not name them (vllm-project/vllm#51096)"
)


def breaks(spec: str, trace: Trace) -> str | None:
    """Why a setting must not be recommended for the program of a trace; None if it can be."""
    if _EXPANDABLE not in _conf(spec):
        return None
    used = set(trace.provenance.extra.get(FEATURES, ()))
    rules = PytorchRules.of(trace.provenance.torch)
    if rules and rules.allocates_from_pools:
        used.discard("mem_pool")
    return next((reason for feature, reason in _BREAKS.items() if feature in used), None)


def caveats(spec: str, trace: Trace) -> list[str]:
    """What a user should check before setting what is recommended."""
    written, lines = _conf(spec), modelled([spec])
    used = trace.provenance.extra.get(FEATURES)
    if _EXPANDABLE in written:
        if used is None:
            lines.append(_NOT_KNOWN)
        elif "custom_all_reduce" in used:
            lines.append(_CUSTOM_ALL_REDUCE)
    reset = [name for name in _RESET if f"{name}:" in written]
    if reset and used is not None and "sets_allocator" in used:
        lines.append(_RESETS.format(names=" and ".join(reset)))
    return lines


def modelled(specs: Sequence[str]) -> list[str]:
    """What to know about allocators that are models, not the same rules."""
    return [_MODEL] if any(innermost(spec) == "cuda_async" for spec in specs) else []


def growing(run: Runner, specs: Sequence[str], device: str) -> list[str]:
    """What grows from step to step: the load, and what some allocators reserve beyond it.

    device: the name of the runner's device in sentences.
    """
    leak, lines = leak_of(run.trace), list[str]()
    needs = [need for spec in specs if leak and (need := run.min_capacity(spec)) is not None]
    if leak and needs:
        lines.append(sentence(leak, min(needs), run.capacity, device))
    return lines + [line for spec in specs if (line := reserve_in_words(run, spec))]


def reserve_in_words(run: Runner, spec: str) -> str:
    """What an allocator reserves from step to step beyond the load; "" if nothing."""
    found = growing_reserve(run.trace, spec, run.device)
    if found is None:
        return ""
    recorded = in_force(spec, run.trace, version=False)
    both = _EXPANDABLE in _conf(recorded) and "max_split_size_mb" in _conf(recorded)
    return reserve_sentence(found, recorded) + _STRANDS * both


def _conf(spec: str) -> str:
    """The settings of a spec as PyTorch's variable holds them; empty for another allocator."""
    try:
        return conf(spec)
    except SpecError:
        return ""
