# SPDX-License-Identifier: Apache-2.0
"""Devices: made from a spec such as `sim:80GiB` or by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

from allocbench.allocators import _core, spec
from allocbench.allocators._core import Device, SpecError

DEVICE_SPECS = {
    "sim:CAPACITY": "a simulated GPU of that capacity: sim:80GiB; more options: context, the bytes "
    "that the program cannot use; alignment, fail_call, fail_above, fail_rate, seed",
    "cuda:ORDINAL": "an NVIDIA GPU: cuda, cuda:1; limit=16GiB reserves no more of it",
}


def parse_bytes(text: str | int) -> int:
    """Bytes from `4096`, `80GiB` or `1.5MiB`. Raises SpecError for anything else."""
    found = _core.parse_bytes(str(text))
    if found is None:
        raise SpecError(f"'{text}' is no number of bytes: write 4096, 512KiB, 16GiB")
    return found


class SimulatedDevice(_core.SimulatedDevice):
    """A GPU's memory as numbers alone: a capacity, addresses, costs, faults.

    A segment begins at the first multiple of `alignment` above all those before it; addresses
    are never used again. The capacity counts the bytes of the segments held and of the pages
    mapped, without rounding; `context` bytes of it cannot be used, as those of a CUDA context.
    The seconds of device calls are modelled after `device_costs.json`.

    `fail_call=k` refuses the k-th malloc or map (from 1), `fail_above` each of more bytes,
    `fail_rate` each with that probability, drawn from `seed`.
    Raises SpecError for a value out of range.
    """

    def __init__(
        self,
        capacity: str | int,
        *,
        context: str | int = 0,
        alignment: str | int = "2MiB",
        fail_call: int = 0,
        fail_above: str | int | None = None,
        fail_rate: float = 0.0,
        seed: int = 0,
    ) -> None:
        costs = cost_model()
        total, kept = parse_bytes(capacity), parse_bytes(context)
        if kept and kept >= total:
            raise SpecError(f"context={context} leaves nothing of a capacity of {capacity}")
        super().__init__(
            total - kept,
            alignment=parse_bytes(alignment),
            source=costs["source"],
            malloc=[tuple(point) for point in costs["calls"]["malloc"]],
            free=[tuple(point) for point in costs["calls"]["free"]],
            map=[tuple(point) for point in costs["calls"]["map"]],
            unmap=[tuple(point) for point in costs["calls"]["unmap"]],
            fail_call=fail_call,
            fail_above=None if fail_above is None else parse_bytes(fail_above),
            fail_rate=fail_rate,
            seed=seed,
        )


class CudaDevice(_core.CudaDevice):
    """The memory of an NVIDIA GPU, through the CUDA driver; no toolkit is needed.

    At most `limit` bytes of it are reserved through this object. The seconds of device calls are
    measured. A context manager: all is given back at its end, or when the process ends.
    Raises SpecError when there is no driver or no such GPU, DeviceError when the driver fails.
    """

    def __init__(self, ordinal: int = 0, *, limit: str | int | None = None) -> None:
        super().__init__(ordinal, None if limit is None else parse_bytes(limit))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cost_model() -> dict[str, Any]:
    """The cost of device calls on the simulated device, with its provenance."""
    text = (Path(__file__).parent / "device_costs.json").read_text(encoding="utf-8")
    model: dict[str, Any] = json.loads(text)
    return model


def make_device(text: str) -> Device:
    """The device of a spec. Raises SpecError for one that does not exist or cannot be read."""
    name = text.strip().partition(":")[0]
    if name not in _KINDS:
        raise SpecError(f"no device is called '{name}'; valid: {', '.join(DEVICE_SPECS)}")
    first, numbers, valid = _KINDS[name]
    parsed = spec.parse(text, first=first)
    if parsed.inner:
        raise SpecError(f"'{text}': a device wraps nothing, of= belongs to an allocator")
    if name == "sim" and "capacity" not in parsed.options:
        raise SpecError(f"'{text}' lacks a capacity: write sim:80GiB")
    unknown = parsed.options.keys() - valid
    if unknown:
        raise SpecError(
            f"the device '{text}' has no option '{min(unknown)}'; valid options: "
            + ", ".join(sorted(valid))
        )
    options: dict[str, Any] = dict(parsed.options)
    for option in numbers.keys() & options.keys():
        options[option] = _number(option, options[option], numbers[option])
    return SimulatedDevice(**options) if name == "sim" else CudaDevice(**options)


_Numbers = dict[str, type[int] | type[float]]
_KINDS: dict[str, tuple[str, _Numbers, set[str]]] = {
    # the option that needs no name, those that are numbers, and all of them
    "sim": (
        "capacity",
        {"fail_call": int, "seed": int, "fail_rate": float},
        {"capacity", "context", "alignment", "fail_call", "fail_above", "fail_rate", "seed"},
    ),
    "cuda": ("ordinal", {"ordinal": int}, {"ordinal", "limit"}),
}


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        value = kind(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**64:
        raise SpecError(f"device option {name}={text} must be a number from 0 to 2^64 - 1")
    return value
