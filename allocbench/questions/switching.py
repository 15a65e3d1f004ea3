# SPDX-License-Identifier: Apache-2.0
"""How to make a program use an allocator: an environment variable, or lines of Python."""

import shlex

from allocbench.allocators import spec
from allocbench.replays.recorded_settings import conf
from allocbench.workloads.pytorch_settings import VARIABLES, PytorchRules


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
