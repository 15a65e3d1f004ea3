# SPDX-License-Identifier: Apache-2.0
"""Every target of the fuzzer reads its seeds, damaged seeds, and inputs that earlier runs kept."""

import random
from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.fuzz.inputs import TARGETS
from tests.fuzz.seeds import seeds

_ONCE_FAILED = Path(__file__).parent / "fuzz/regressions"
_DAMAGED = 60  # inputs for each target


@pytest.fixture(scope="module")
def inputs() -> dict[str, list[bytes]]:
    return seeds()


def test_every_target_has_seeds(inputs: dict[str, list[bytes]]) -> None:
    assert inputs.keys() == TARGETS.keys()
    assert all(inputs.values())


@pytest.mark.parametrize("target", TARGETS)
def test_seeds_and_damaged_seeds(target: str, inputs: dict[str, list[bytes]]) -> None:
    for content in inputs[target]:
        TARGETS[target](content)
    whole = [*inputs[target], *corpus.kept()[target]]
    rng = random.Random(target)
    for _ in range(_DAMAGED):
        TARGETS[target](_damaged(bytearray(rng.choice(whole)), rng))


def _damaged(content: bytearray, rng: random.Random) -> bytes:
    """A byte changed, a part removed or repeated, up to three times."""
    for _ in range(rng.randint(1, 3)):
        begin = rng.randrange(len(content) + 1)
        end = min(len(content), begin + rng.randint(1, 20))
        match rng.randrange(3):
            case 0:
                content[begin:end] = rng.randbytes(end - begin)
            case 1:
                del content[begin:end]
            case _:
                content[begin:begin] = content[begin:end]
    return bytes(content)


@pytest.mark.parametrize("target", TARGETS)
def test_inputs_that_reached_new_code(target: str) -> None:
    kept = corpus.kept()[target]
    assert kept
    for content in kept:
        TARGETS[target](content)


@pytest.mark.parametrize(
    "path", sorted(_ONCE_FAILED.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_inputs_that_once_failed(path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes())
