# SPDX-License-Identifier: Apache-2.0
"""Devices: created from a spec such as `sim:80GiB` or directly."""

from __future__ import annotations

import json
from collections.abc import Set
from functools import cache
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from allocbench.allocators import _core, spec
from allocbench.allocators._core import Device, SpecError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEVICE_SPECS = {
    "sim:CAPACITY": "a simulated GPU of that capacity: sim:80GiB; more options: context, the bytes "
    "that the program cannot use; addresses, down as on Linux, or up; costs of device "
    "calls, estimate or h100; page, the page size of segments; alignment, fail_call, fail_above, "
    "fail_rate, seed",
    "cuda:ORDINAL": "an NVIDIA GPU: cuda, cuda:1; limit=16GiB reserves at most that much",
}

COST_MODELS = {"estimate": "device_costs.json", "h100": "device_costs_h100.json"}
"""The files of the cost models by name; the first one is the default."""


def parse_bytes(text: str | int) -> int:
    """Parse a number of bytes: `4096`, `80GiB` or `1.5MiB`. Raises SpecError for anything else."""
    size = _core.parse_bytes(str(text))
    if size is None:
        raise SpecError(f"'{text}' is not a number of bytes: write 4096, 512KiB, 16GiB")
    return size


class SimulatedDevice(_core.SimulatedDevice):
    """A simulated GPU memory: a capacity, addresses, modelled costs and injected faults.

    Each segment begins at the last multiple of `alignment` where it ends below all earlier
    segments, or with `addresses="up"` at the first one above them; addresses are never reused.
    cudaMalloc mostly goes down on Linux and up on Windows; the order decides between free blocks of
    equal size. Segments and mapped pages count towards the capacity with their exact sizes, or with
    `page` as whole pages of that size, which segments of up to half a page share. Pools, for
    `cuda_async`, count with pages of 32 MiB. `context` bytes of the capacity are not available,
    like those of a CUDA context. The seconds of device calls are estimated with the cost model
    `costs`, one of `COST_MODELS`.

    `fail_call=k` refuses the k-th malloc or map (counted from 1), `fail_above` every one of more
    bytes, and `fail_rate` each one with that probability, drawn from `seed`. Raises SpecError for a
    value that is out of range.
    """

    def __init__(
        self,
        capacity: str | int,
        *,
        context: str | int = 0,
        addresses: str = "down",
        alignment: str | int = "2MiB",
        fail_call: int = 0,
        fail_above: str | int | None = None,
        fail_rate: float = 0.0,
        seed: int = 0,
        costs: str = "estimate",
        page: str | int = 0,
    ) -> None:
        if addresses not in ("down", "up"):
            raise SpecError(f"device option addresses={addresses} must be down or up")
        if costs not in COST_MODELS:
            raise SpecError(f"device option costs={costs} must be {' or '.join(COST_MODELS)}")
        total, kept = parse_bytes(capacity), parse_bytes(context)
        if kept and kept >= total:
            raise SpecError(f"context={context} leaves nothing of a capacity of {capacity}")
        super().__init__(
            total - kept,
            alignment=parse_bytes(alignment),
            up=addresses == "up",
            source=costs,
            **{
                call: [(point["bytes"], point["seconds"]) for point in points]
                for call, points in cost_model(costs)["calls"].items()
            },
            fail_call=fail_call,
            fail_above=None if fail_above is None else parse_bytes(fail_above),
            fail_rate=fail_rate,
            seed=seed,
            page=parse_bytes(page),
        )


class RecordedDevice(_core.RecordedDevice):
    """A simulated device that returns the addresses of a recording, and refuses the same requests.

    kind: uint8 (n,), indices into `CALL_KINDS`. address, size: uint64 (n,), bytes. The calls that
    the recorded device served, in order. It refused a request if the next recorded call returns
    memory instead. Other calls are served as by a SimulatedDevice of `capacity`.
    """

    def __init__(
        self,
        capacity: str | int,
        kind: NDArray[np.uint8],
        address: NDArray[np.uint64],
        size: NDArray[np.uint64],
    ) -> None:
        super().__init__(parse_bytes(capacity), kind, address, size)


class CudaDevice(_core.CudaDevice):
    """The memory of an NVIDIA GPU through the CUDA driver; no CUDA toolkit is needed.

    At most `limit` bytes are reserved through this object. The seconds of device calls are
    measured. As a context manager it frees everything at the end; otherwise the end of the process
    does. Raises SpecError if there is no driver or no such GPU, and DeviceError if the driver
    fails.
    """

    def __init__(self, ordinal: int = 0, *, limit: str | int | None = None) -> None:
        super().__init__(ordinal, None if limit is None else parse_bytes(limit))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def cost_model(name: str = "estimate") -> dict[str, Any]:
    """A model of the cost of device calls on the simulated device, with its provenance.

    name: one of `COST_MODELS`.

    calls: for each call, in the order of `DeviceStats.calls_at_points`, the points of its cost by
    size: bytes, seconds, low and high (the range of the seconds), and measured: the names of the
    sources that measured it.
    """
    text = (Path(__file__).parent / COST_MODELS[name]).read_text(encoding="utf-8")
    model: dict[str, Any] = json.loads(text)
    return model


def make_device(text: str) -> Device:
    """Create the device described by a spec.

    Raises SpecError for an unknown device and for an invalid spec.
    """
    name = spec.name_of(text)
    if name not in _KINDS:
        raise SpecError(f"no device is called '{name}'; valid: {', '.join(DEVICE_SPECS)}")
    kind, first = _KINDS[name]
    valid = _options_of(name)
    parsed = spec.parse(text, first=first)
    if parsed.inner:
        raise SpecError(f"'{text}': a device cannot wrap anything; of= is an option of allocators")
    if name == "sim" and "capacity" not in parsed.options:
        raise SpecError(f"'{text}' needs a capacity: write sim:80GiB")
    unknown = parsed.options.keys() - valid
    if unknown:
        others = "; a null GPU, null:CARD, has others" if name == "sim" else ""
        told = f"the device '{text}' has no option '{min(unknown)}'; valid options: "
        raise SpecError(told + ", ".join(sorted(valid)) + others)
    options: dict[str, Any] = dict(parsed.options)
    for option in _NUMBERS.keys() & options.keys():
        options[option] = _number(option, options[option], _NUMBERS[option])
    return kind(**options)


@cache
def _options_of(name: str) -> Set[str]:
    return signature(_KINDS[name][0].__init__).parameters.keys() - {"self"}


# Per device: its class, whose parameters are the options, and the one written without its name.
_KINDS: dict[str, tuple[type[SimulatedDevice | CudaDevice], str]] = {
    "sim": (SimulatedDevice, "capacity"),
    "cuda": (CudaDevice, "ordinal"),
}
_NUMBERS: dict[str, type[int] | type[float]] = {
    "fail_call": int,
    "seed": int,
    "fail_rate": float,
    "ordinal": int,
}


def _number(name: str, text: str, kind: type[int] | type[float]) -> int | float:
    try:
        value = kind(text)
    except ValueError:
        value = -1
    if not 0 <= value < 2**64:
        raise SpecError(f"device option {name}={text} must be a number from 0 to 2^64 - 1")
    return value
