# SPDX-License-Identifier: Apache-2.0
"""Runs one target: `python -m tests.fuzz.worker TARGET [option ...] [file or folder ...]`.

The options are those of libFuzzer. A file is given to the target once, which repeats a failure.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

import atheris

INSTRUMENTED = "allocbench"


class _SourceFinder:
    """Finds modules with Python's own loader, which atheris can instrument.

    The finder of an editable installation wraps its loaders. atheris would replace only a method
    of the wrapper, which nobody calls.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != INSTRUMENTED:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            found = finder.find_spec(name, path, target)
            if found is None:
                continue
            if not found.origin or not found.origin.endswith(tuple(SOURCE_SUFFIXES)):
                return found
            return spec_from_file_location(
                name,
                found.origin,
                submodule_search_locations=found.submodule_search_locations,
            )
        return None


sys.meta_path.insert(0, _SourceFinder())
with atheris.instrument_imports(include=[INSTRUMENTED]):
    from tests.fuzz.inputs import TARGETS


def main() -> None:
    _, target, *arguments = sys.argv
    # What libFuzzer runs again to merge: a shell splits it into words.
    again = f"{sys.executable} -m {__spec__.name} {target}"
    atheris.Setup([again, *arguments], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
