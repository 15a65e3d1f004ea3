# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's libraries ask PyTorch for: the rules of a model, and the options that change them.

The table is `workspaces.json`; the native library (`libraries/workspaces.hpp`) applies it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from allocbench.allocators import SpecError
from allocbench.allocators.devices import parse_bytes


@dataclass(frozen=True)
class Rule:
    """How many bytes a library asks for.

    rule: its name, which is also that of the option of `null:CARD`. of: the requests that it is
    about. default: a number of bytes, or the name of an assumption. assumptions: formulas by name.
    source: of the default and of the formulas.
    """

    rule: str
    library: str
    of: str
    default: str
    assumptions: Mapping[str, str]
    source: str

    def read(self, text: str) -> str:
        """The value of the option: bytes as digits or the name of a formula; raises SpecError."""
        if text in self.assumptions:
            return text
        try:
            return str(parse_bytes(text))
        except SpecError as error:
            formulas = "".join(f" or {name}" for name in self.assumptions)
            raise SpecError(f"{self.rule}={text}: write a number of bytes{formulas}") from error


@cache
def rules() -> Mapping[str, Rule]:
    """All rules by name, in the order of the native library."""
    text = files("allocbench.null_gpu").joinpath("workspaces.json").read_text(encoding="utf-8")
    return {row["rule"]: Rule(**row) for row in json.loads(text)}
