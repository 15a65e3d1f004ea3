# SPDX-License-Identifier: Apache-2.0
"""How a program is made to use an allocator: an environment variable, or lines of Python."""

from __future__ import annotations

from allocbench.allocators import SpecError, spec

VARIABLE = "PYTORCH_ALLOC_CONF"
_FLAGS = {"true": "True", "false": "False"}
_NOT_IN_CONF = ("version", "conf")


def conf(text: str) -> str:
    """What PYTORCH_ALLOC_CONF has to hold for a spec of `caching`; empty for its defaults.

    Raises SpecError for a spec of another allocator.
    """
    parsed = spec.parse(text)
    if parsed.name != "caching" or parsed.inner:
        raise SpecError(f"'{text}': only caching is set by {VARIABLE}")
    options = {key: value for key, value in parsed.options.items() if key not in _NOT_IN_CONF}
    items = [f"{key}:{_FLAGS.get(value, value)}" for key, value in options.items()]
    return ",".join(filter(None, [parsed.options.get("conf", ""), *items]))


def how(text: str) -> str:
    """The line, or lines, with which a PyTorch program uses the allocator of a spec.

    For `caching` those of the environment, as PyTorch reads them: nothing is to be installed.
    Otherwise Python, to run before anything is on the GPU. Raises SpecError when the text is none.
    """
    parsed = spec.parse(text)
    if parsed.name == "caching" and not parsed.inner:
        return f"{VARIABLE}={conf(text)}" if conf(text) else f"unset {VARIABLE}"
    if parsed.name == "naive":
        return "PYTORCH_NO_CUDA_MEMORY_CACHING=1"
    return f'import allocbench.allocators.torch\nallocbench.allocators.torch.use("{text}")'


def with_conf(text: str) -> str:
    """A spec of `caching` with its settings as a conf; any other spec as it is."""
    parsed = spec.parse(text)
    if parsed.name != "caching" or parsed.inner or not conf(text):
        return text
    version = {key: value for key, value in parsed.options.items() if key == "version"}
    return str(spec.Spec("caching", version | {"conf": conf(text)}))
