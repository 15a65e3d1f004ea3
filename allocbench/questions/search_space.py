# SPDX-License-Identifier: Apache-2.0
"""The settings of an allocator that are worth trying, based on the options that it declares.

A flag is tried both ways and a number of bytes in powers of two around its default. The
declarations do not say which plain numbers or texts make sense, so those values are listed here.
Limits, which only take memory away, and options that depend on the environment are left out.
"""

from collections.abc import Iterator, Mapping

from allocbench import allocators
from allocbench.allocators import Option, spec
from allocbench.replays.recorded_settings import inside
from allocbench.replays.runner import can_be_made

Settings = Mapping[str, str]
"""Option -> value as written in a spec; a missing option has its default."""

DEFAULT = ""
"""The value that stands for leaving the option out."""

_POWERS = (-5, -4, -3, -2, -1, 1, 2, 3, 4, 5)  # of two, times the default
_SIZES_MB = ("32", "64", "128", "256", "512", "1024", "2048", "4096")
_SHARES = ("0.5", "0.6", "0.7", "0.8", "0.9", "0.95")
_VALUES: Mapping[str, tuple[str, ...]] = {
    "caching:max_split_size_mb": ("24", *_SIZES_MB),
    "caching:max_non_split_rounding_mb": ("32", "64", "128", "256", "512", "1024"),
    "caching:large_segment_size_mb": ("12", "16", "32", "64", "128", "256", "512", "1024"),
    "caching:roundup_power2_divisions": ("2", "4", "8", "16", "32", "64"),
    "caching:garbage_collection_threshold": _SHARES,
    "bfc:allow_growth": ("false",),
    "bfc:extend": ("requested",),
    "bfc:first_region": ("256KiB", "1MiB", "8MiB", "32MiB", "128MiB"),
    "bfc:largest_region": ("64MiB", "256MiB", "1GiB", "4GiB"),
    "bfc:fragmentation_fraction": ("0.001", "0.01", "0.05", "0.1", "0.25", "0.5"),
    "planned:page": ("2MiB", "4MiB", "8MiB", "16MiB", "32MiB", "64MiB"),
    "expandable:slack": ("0.02", "0.05", "0.1", "0.25", "0.5", "inf"),
    "slab:empty_slabs": ("0", "2", "4", "8", "16"),
    "arena:planner": ("execution_order", "best_fit"),
    "rmm_pool:initial_pool_size": ("0",),
    "mlx_cache:cache_limit": ("0", "256MiB", "1GiB", "4GiB", "16GiB"),
}
LEFT_OUT: Mapping[str, str] = {
    "bfc:preset": "the framework that is used",
    "bfc:memory_limit": "a limit",
    "bfc:per_process_memory_fraction": "a limit",
    "bfc:system_reserve": "a limit",
    "bfc:retry_seconds": "waits for other threads, and a replay has none",
    "caching:per_process_memory_fraction": "a limit",
    "caching:throw_on_cudamalloc_oom": "fails requests that others serve",
    "caching:expandable_segments_reserve": "limits addresses, not memory",
    "caching:version": "the PyTorch that is installed",
    "caching:conf": "all other options in one string",
    "cuda_async:release_threshold": "acts when a program waits for the GPU, as no trace does",
    "cupy_pool:memory_limit": "a limit",
    "ggml_pool:vmm": "for programs that free in reverse order",
    "mlx_cache:buffers": "a limit",
    "mlx_cache:memory_limit": "a limit",
    "planned:plan": "a file of an earlier run",
    "rmm_arena:arena_size": "a limit",
    "rmm_pool:maximum_pool_size": "a limit",
    "xla_vmm:memory_fraction": "a limit",
}
"""Options that are not tried, and why."""


def values(strategy: str) -> dict[str, tuple[str, ...]]:
    """The options of a strategy, each with the values to try, DEFAULT first.

    Each value is valid alone or together with others. Raises SpecError for an unknown name.
    """
    options = allocators.info(strategy).options
    by_option = {option.name: (DEFAULT, *_values(strategy, option)) for option in options}
    return {name: tried for name, tried in by_option.items() if len(tried) > 1}


def written(strategy: str, settings: Settings) -> str:
    """The spec of a strategy with these settings; those at DEFAULT are left out."""
    changed = {name: value for name, value in settings.items() if value != DEFAULT}
    return str(spec.Spec(strategy, changed))


def singles(text: str, device: str) -> Iterator[str]:
    """The specs that differ from `text` in a single setting.

    The setting is one of the innermost allocator; wrappers stay. Only specs that can be created on
    the device are included. Raises SpecError.
    """
    *wrappers, inner = spec.parse(text).layers
    options = {option.name: option for option in allocators.info(inner.name).options}
    for name, tried in values(inner.name).items():
        now = inner.options.get(name, DEFAULT)
        for value in tried:
            if value in (now, options[name].default if now == DEFAULT else now):
                continue
            changed = {**inner.options, name: value}
            kept = {name: value for name, value in changed.items() if value != DEFAULT}
            candidate = inside(wrappers, spec.Spec(inner.name, kept))
            if can_be_made(candidate, device):
                yield candidate


def _values(strategy: str, option: Option) -> tuple[str, ...]:
    key = f"{strategy}:{option.name}"
    if key in LEFT_OUT:
        return ()
    if key in _VALUES:
        return _VALUES[key]
    if option.type == "true or false":
        return ("false" if option.default == "true" else "true",)
    if option.type == "bytes" and option.default:
        default = allocators.parse_bytes(option.default)
        sizes = [int(default * 2.0**power) for power in _POWERS]
        return tuple(_bytes(size) for size in sizes if size >= 1)
    return ()


def _bytes(size: int) -> str:
    """A number of bytes in the shortest exact form."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)
