# SPDX-License-Identifier: Apache-2.0
"""How to make a program use an allocator: an environment variable, or lines of Python."""

from __future__ import annotations

import shlex

from allocbench.allocators import SpecError, spec
from allocbench.workloads.pytorch_settings import VARIABLES, PytorchRules, conf_of


def conf(text: str) -> str:
    """The value of PyTorch's variable for a spec of `caching`; empty for its defaults.

    Raises SpecError for a spec of another allocator.
    """
    parsed = spec.parse(text)
    if parsed.name != "caching" or parsed.inner:
        raise SpecError(f"'{text}': {VARIABLES[-1]} configures only caching")
    return conf_of(parsed.options)


def how(text: str) -> str:
    """The lines with which a PyTorch program uses the allocator of a spec.

    For `caching`, shell lines that set the variable that the version in the spec reads, or both
    variables without a version; nothing needs to be installed. Otherwise Python code to run before
    anything is on the GPU. Raises SpecError if the text is not a spec.
    """
    parsed = spec.parse(text)
    if parsed.name == "caching" and not parsed.inner:
        rules = PytorchRules.of(parsed.options.get("version", ""))
        names = (rules.variable,) if rules else VARIABLES
        if not conf(text):
            return f"unset {' '.join(names)}"
        return "\n".join(f"export {name}={shlex.quote(conf(text))}" for name in names)
    if parsed.name == "naive":
        return "export PYTORCH_NO_CUDA_MEMORY_CACHING=1"
    return f'import allocbench.allocators.torch\nallocbench.allocators.torch.use("{text}")'


def with_conf(text: str) -> str:
    """A spec of `caching` with its settings as a conf; any other spec unchanged."""
    parsed = spec.parse(text)
    if parsed.name != "caching" or parsed.inner or not conf(text):
        return text
    version = {key: value for key, value in parsed.options.items() if key == "version"}
    return str(spec.Spec("caching", version | {"conf": conf(text)}))
