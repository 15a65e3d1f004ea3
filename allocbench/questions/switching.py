# SPDX-License-Identifier: Apache-2.0
"""How to make a program use an allocator: an environment variable, or lines of Python."""

from __future__ import annotations

import re
import shlex

from allocbench.allocators import SpecError, spec
from allocbench.workloads.pytorch_settings import conf_of

VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Where PyTorch reads its settings: the name up to 2.9, and the one since.

2.9 reads both, but takes expandable segments from the first alone (pytorch/pytorch#183387).
"""
_FIRST_TO_READ_THE_NEW = (2, 10)


def conf(text: str) -> str:
    """The value of PyTorch's variable for a spec of `caching`; empty for its defaults.

    Raises SpecError for a spec of another allocator.
    """
    parsed = spec.parse(text)
    if parsed.name != "caching" or parsed.inner:
        raise SpecError(f"'{text}': {VARIABLES[1]} configures only caching")
    return conf_of(parsed.options)


def settings_of(conf: str) -> dict[str, str]:
    """The settings by name in a value of PyTorch's variable; a value in brackets has commas."""
    items = re.split(r",(?![^\[]*\])", conf)
    pairs = (item.partition(":") for item in items if item)
    return {name.strip(): value.strip() for name, _, value in pairs}


def how(text: str) -> str:
    """The lines with which a PyTorch program uses the allocator of a spec.

    For `caching`, shell lines that set the variable that the version in the spec reads, or both
    variables without a version; nothing needs to be installed. Otherwise Python code to run before
    anything is on the GPU. Raises SpecError if the text is not a spec.
    """
    parsed = spec.parse(text)
    if parsed.name == "caching" and not parsed.inner:
        names = _variables(parsed.options.get("version", ""))
        if not conf(text):
            return f"unset {' '.join(names)}"
        return "\n".join(f"export {name}={shlex.quote(conf(text))}" for name in names)
    if parsed.name == "naive":
        return "export PYTORCH_NO_CUDA_MEMORY_CACHING=1"
    return f'import allocbench.allocators.torch\nallocbench.allocators.torch.use("{text}")'


def _variables(version: str) -> tuple[str, ...]:
    if not version:
        return VARIABLES
    release = tuple(int(part) for part in version.split(".")[:2])
    return VARIABLES[1:] if release >= _FIRST_TO_READ_THE_NEW else VARIABLES[:1]


def with_conf(text: str) -> str:
    """A spec of `caching` with its settings as a conf; any other spec unchanged."""
    parsed = spec.parse(text)
    if parsed.name != "caching" or parsed.inner or not conf(text):
        return text
    version = {key: value for key, value in parsed.options.items() if key == "version"}
    return str(spec.Spec("caching", version | {"conf": conf(text)}))
