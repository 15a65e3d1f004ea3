# SPDX-License-Identifier: Apache-2.0
"""Runs one target: `python -m tests.fuzz.worker TARGET [option ...] [file or folder ...]`.

The options are those of libFuzzer. A file is given to the target once, which repeats a failure.
"""

import gc
import operator
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import SOURCE_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from types import FunctionType, ModuleType
from typing import Any

import atheris
import numpy as np

INSTRUMENTED = "allocbench"
MOST_SECONDS = 10  # of processor time for an input
_COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)


class _SourceFinder:
    """Finds modules with Python's own loader, which atheris can instrument.

    The finder of an editable installation wraps its loaders. atheris would replace only a method
    of the wrapper, which nobody calls.
    """

    def __init__(self) -> None:
        self.late = False  # whether libFuzzer would not see the code of a module imported now

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != INSTRUMENTED:
            return None
        assert not self.late, f"{name} is imported so late that libFuzzer does not see its code"
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            found = finder.find_spec(name, path, target)
            if found is None:
                continue
            if not found.origin or not found.origin.endswith(tuple(SOURCE_SUFFIXES)):
                return found
            return spec_from_file_location(
                name, found.origin, submodule_search_locations=found.submodule_search_locations
            )
        return None


def _timed(target: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """The target; one that takes too long raises, whatever else the processor does."""

    def run(data: bytes) -> None:
        if not isinstance(atheris._trace_cmp, FunctionType):  # set when fuzzing begins
            atheris._trace_cmp = _arrays_apart(atheris._trace_cmp)
        began = time.process_time()
        target(data)
        took = time.process_time() - began
        assert took < MOST_SECONDS, f"an input takes {took:.1f} s of processor time"

    return run


def _arrays_apart(traced: Callable[..., Any]) -> Callable[..., Any]:
    """What atheris calls to compare, which never frees an array that is the result.

    Arrays are compared here. libFuzzer learns nothing from them.
    """

    def compare(left: Any, right: Any, code: int, place: int, constant: bool) -> Any:
        if type(left) is np.ndarray or type(right) is np.ndarray:
            return _COMPARISONS[code](left, right)
        return traced(left, right, code, place, constant)

    return compare


def main() -> None:
    _, target, *arguments = sys.argv
    finder = _SourceFinder()
    sys.meta_path.insert(0, finder)
    with atheris.instrument_imports(include=[INSTRUMENTED]):
        from tests.fuzz import corpus
        from tests.fuzz.inputs import TARGETS
        from tests.fuzz.seeds import seeds

        for known in (seeds(), corpus.kept()):  # modules are imported when an input needs them
            for name, inputs in known.items():
                for content in inputs if name == target else inputs[:1]:
                    TARGETS[name](content)
    finder.late = True
    gc.freeze()  # what the modules hold need not be looked at again after some inputs
    # What libFuzzer runs again to merge: a shell splits it into words.
    again = f"{sys.executable} -m {__spec__.name} {target}"
    atheris.Setup([again, *arguments], _timed(TARGETS[target]))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
