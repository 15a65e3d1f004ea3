# SPDX-License-Identifier: Apache-2.0
"""Sentences and tables about the later rounds of programs that were predicted, then measured."""

import json
from collections.abc import Iterable

from benchmarks.workshop.measured import report as measured_report
from benchmarks.workshop.measured.plan import CONVOLUTIONS
from benchmarks.workshop.measured.report import Compared
from docs.generate.truth import (
    AFTER,
    BEFORE,
    FAR,
    GPU,
    RESULTS,
    USUAL,
    WITHOUT_ERROR,
    errors,
    later,
    measured_peak,
    other_card,
    requested,
    result,
    with_peaks,
)


def truth_second() -> str:
    """What the second round found: errors, limits, and the runs that differ."""
    free, limited, tables = _round("second")
    provenance, _ = measured_report.read(RESULTS / "second" / "measured.jsonl")
    return (
        f"`benchmarks/workshop/measured/second.txt` lists {len(free)} other programs: compiled"
        " ones, texts of various lengths, batches below ten, diffusion models, Adafactor, and"
        f" convolutions in float32 and bfloat16. {len({one.run.name for one in limited})} of them"
        " ran again under four limits, of 97, 99, 100.5 and 102% of the capacity that `fit` found."
        " Their predictions were committed before they were measured, on"
        f" {provenance['date'][:10]}, on another H100 80GB HBM3 with the same driver. One version"
        f" differed between the two: Python {provenance['python']} and 3.11.7.{tables} All errors"
        f" of more than {FAR:.0%} are in convolutional networks or compiled ones."
    )


def truth_second_again() -> str:
    """The convolutional networks of the second round with the rules that they showed, in words."""
    again = [one for one in later("second", AFTER) if one.said]
    scores = "\n".join(measured_report.summary({CONVOLUTIONS[0]: again}))
    number, ranges = _networks_of("second", "9cf8e0bc")
    exact = sum(abs(one.error or 0) < WITHOUT_ERROR for one in with_peaks(again, "cnn"))
    return (
        f"{scores}\n\n{exact} of the {len(with_peaks(again, 'cnn'))} convolutional networks have"
        f" no error then. {number} other runs were not used for the rules: MnasNet with ten"
        " batches from 240 to 420, and MobileNetV2 with 240, as in the"
        " [published runs](#published-runs-on-three-cards), were measured on the same H100. Their"
        f" errors are {ranges}."
    )


def truth_third() -> str:
    """What the third round found: errors, limits, and the runs that differ."""
    free, limited, tables = _round("third")
    provenance, _ = measured_report.read(RESULTS / "third" / "measured.jsonl")
    return (
        f"`benchmarks/workshop/measured/third.txt` lists {len(free)} programs of kinds that the"
        " others did not have: detectors, images made from images or noise, volumes, videos and"
        " sounds; preferences, rewards, experts and state spaces; physics, statistics, graphs,"
        " games and recommendation; CUDA graphs, streams, host memory and other optimizers; and"
        f" settings of PyTorch's allocator. {len({one.run.name for one in limited})} of them ran"
        " again with two limits, of 97 and 100.5% of the capacity that `fit` found. Their"
        f" predictions were committed before they were measured, on {provenance['date'][:10]}, on"
        " a third H100 80GB HBM3 with the same driver. Two versions were others there than in the"
        f" predictions: Python {provenance['python']} instead of 3.11.7, and transformers 5.17"
        f" instead of 5.24.{tables}"
    )


def truth_third_again() -> str:
    """Runs of the third round with the rules and versions that it showed, in words."""
    again = [one for one in later("third", AFTER) if one.said and one.limit is None]
    known = {one.run.name for one in again}
    before = [one for one in later("third") if one.run.name in known and one.limit is None]
    number, ranges = _networks_of("third", "139f34c2")
    return (
        f"The {len(again)} runs with convolutions or models whose code differs between the two"
        f" versions of transformers: {errors(before)} before, {errors(again)} now.\n\n"
        + "\n".join(measured_report.summary({CONVOLUTIONS[0]: again}))
        + f"\n\n{_far(again)} {number} other runs were measured on the same H100: ConvNeXt, two"
        " MobileNetV3, two RegNet, ResNet101 and two VGG, as in the"
        " [published runs](#published-runs-on-three-cards). Only ResNet101 led to a rule. Their"
        f" errors are {ranges}."
    )


def _networks_of(name: str, card: str) -> tuple[int, str]:
    """How many networks of published runs were measured on a card, and their errors, in words."""
    predicted = result(f"{name}/networks.json")["predicted"]
    found = {"reserved": list[float](), "allocated": list[float]()}
    for path in GPU.parent.glob(f"*{card}/published/*.json"):
        printed = json.loads(path.read_text(encoding="utf-8"))["measured"]["printed"]
        for kind, errors_of_kind in found.items():
            errors_of_kind.append(predicted[path.stem][kind] / printed[kind] - 1)
    reserved, allocated = (f"{min(some):+.2%} to {max(some):+.2%}" for some in found.values())
    return len(predicted), (
        f"{reserved} of what PyTorch reserved at most, and {allocated} of what it allocated"
    )


def _round(name: str) -> tuple[list[Compared], list[Compared], str]:
    """The runs of a later round without and with a limit, and their scores in a table and words."""
    found = later(name)
    free = with_peaks(found)
    known = result(f"{name}/{BEFORE}")["runs"]
    exact = sum(requested(f"{name}/{BEFORE}", one) == measured_peak(one) for one in free)
    limited = [one for one in found if one.limit is not None and one.truth and one.said]
    wrong = [
        f"`{one.run.name}` with {one.limit / known[one.run.name][USUAL]['min_capacity']:.1%}"
        for one in limited
        if one.limit and one.truth and one.said and one.truth.oom != one.said.oom
    ]
    scores = "\n".join(measured_report.summary({CONVOLUTIONS[0]: found}))
    return (
        free,
        limited,
        f"\n\n{scores}\n\nIn {exact} of the {len(free)} runs without a limit, the bytes requested"
        f" at the peak are exactly the predicted ones. Of the {len(limited)} runs under a limit,"
        f" {len(limited) - len(wrong)} ended as predicted; those that completed although they"
        f" should not have are {', '.join(wrong)} of that capacity. {_far(free)}",
    )


def _far(found: Iterable[Compared]) -> str:
    """The runs with large errors, in words."""
    far = [one for one in found if abs(one.error or 0) > FAR]
    named = (
        f"`{one.run.name}` {one.error:+.1%}" for one in sorted(far, key=lambda one: one.error or 0)
    )
    return f"Errors of more than {FAR:.0%}: {', '.join(named)}."


def truth_other_card() -> str:
    """The runs of both later rounds on an H200, beside those on an H100."""
    provenance, _ = measured_report.read(RESULTS / "h200" / "third.jsonl")
    same, compiled, alike = other_card()
    listed = ", ".join(f"`{name}` ({error:+.2%})" for name, error in same.items() if error)
    return (
        f"The runs of both rounds were repeated on an {provenance['gpu']} with the same driver, on"
        f" {provenance['date'][:10]}. {len(same)} of those without a limit and without"
        f" `torch.compile` had the same versions of all packages there. Except for {listed}, they"
        f" reserved exactly as many bytes as on the H100. {len(compiled)} compiled ones differ by"
        f" up to {max(map(abs, compiled)):.1%}, as Inductor chooses kernels by time. Of the"
        f" {len(alike)} runs under a limit, {sum(alike)} ended as on the H100."
    )


PARTS = (truth_second, truth_second_again, truth_third, truth_third_again, truth_other_card)
"""What stands on pages between the marks of `docs.generate.claims`."""
