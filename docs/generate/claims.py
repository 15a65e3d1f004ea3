# SPDX-License-Identifier: Apache-2.0
"""The generated parts of the README and of the pages about agreement with real GPUs.

`python -m docs.generate.claims` writes them, from the committed files in benchmarks/results: what
stands between `<!-- NAME -->` and `<!-- end of NAME -->`. No GPU and no PyTorch is needed.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import TextWrapper

from benchmarks.workshop.measured.plan import CONVOLUTIONS
from docs.generate import agreement, comparisons, rounds, truth
from docs.generate.truth import AFTER, BEFORE, errors, later, measured, published, with_peaks

ROOT = Path(__file__).parent.parent.parent
PAGES = (
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("truth", "verify", "on-a-gpu", "without-a-gpu", "whatif")
    ),
)
_WRAPPERS = [
    TextWrapper(128, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    for indent in ("", "  ")
]
"""Of a line of text, and of an item of a list."""
PART = re.compile(
    r"^<!-- (?P<name>[a-z_]+)(?P<of>(?: [a-z0-9-]+)?) -->\n.*?^<!-- end of (?P=name) -->\n",
    flags=re.MULTILINE | re.DOTALL,
)


def written(page: str) -> str:
    """A page with its generated parts made anew; raises KeyError for an unknown part."""

    def part(found: re.Match[str]) -> str:
        text = _wrapped(PARTS[found["name"]](*found["of"].split()))
        return f"<!-- {found['name']}{found['of']} -->\n{text}\n<!-- end of {found['name']} -->\n"

    return PART.sub(part, page)


def _wrapped(text: str) -> str:
    """Text with lines of usual length, except for tables."""
    return "\n".join(
        line if line.startswith("|") else _WRAPPERS[line.startswith("- ")].fill(line)
        for line in text.split("\n")
    )


def rows() -> Iterator[tuple[str, str, str]]:
    """What allocbench computes, what it was compared with, and the result."""
    before, after = (measured(name)[CONVOLUTIONS[0]] for name in (BEFORE, AFTER))
    peak = "the peak of a program"
    free = with_peaks(before)
    yield (
        f"[{peak}](docs/truth.md#measured-on-an-h100) on a null GPU",
        f"{len(free)} runs on an H100, all predicted before they were measured",
        f"{errors(free)}. For language models in training: {errors(with_peaks(free, 'language'))}",
    )
    yield (
        "the same, with rules that these runs corrected: in-sample",
        "the same runs",
        f"language models in training: {errors(with_peaks(after, 'language'))}. Convolutional"
        f" networks, by formula: {'; '.join(_formulas())}",
    )
    again = with_peaks(later("second"))
    yield (
        f"[{peak}](docs/truth.md#a-second-round) on a null GPU, with these rules",
        f"{len(again)} other runs on an H100, all predicted before they were measured",
        f"{errors(again)}. For language models in training:"
        f" {errors(with_peaks(again, 'language'))}. Convolutional networks:"
        f" {errors(with_peaks(again, 'cnn'))}",
    )
    found = published()["all"]
    yield (
        f"[{peak}](docs/truth.md#published-runs-on-three-cards) on a null GPU: in-sample",
        f"{found['rows']} published training runs on three cards, known before they were predicted",
        f"median error {found['median_error']:.2%}, p90 {found['p90_error']:.2%}; out of memory"
        f" predicted correctly for {found['oom_agreement']:.0%}",
    )
    yield (
        "[the allocs and frees of a program](docs/without-a-gpu.md#an-h100) on a null GPU:"
        " in-sample",
        "the 13 bundled programs on an H100",
        _programs(),
    )
    addresses = list(agreement.caching_rows())
    allocs = sum(_number(row[2]) for row in addresses)
    equal = sum(_number(row[4]) for row in addresses)
    yield (
        "[the addresses of `caching`](docs/verify.md#agreement-so-far)",
        f"{len(addresses)} recordings of these programs on an H100",
        f"{equal:,} of {allocs:,} allocs have the address that PyTorch gave them",
    )
    count, equal_replays = comparisons.replayed()
    yield (
        "[bytes, peaks and device calls of every strategy](docs/devices.md#measured-on-an-h100)",
        count,
        f"{equal_replays}; they are compared with [a model of its pool](docs/devices.md#pools)"
        " apart",
    )
    blocks, wrong = comparisons.filled()
    yield (
        "that blocks do not overlap",
        f"[{blocks}](docs/on-a-gpu.md#measure-everything), filled with a pattern and compared on an"
        " H100",
        f"{wrong} words were wrong",
    )


def claims() -> str:
    """The table of the README."""
    return truth.table(("what allocbench computes", "compared with", "result"), rows(), right=3)


def _formulas() -> Iterator[str]:
    """The formulas for convolutions that were predicted, each with its errors."""
    before = with_peaks(measured(BEFORE)["0"], "cnn")
    yield f"`0` {errors(before)} (before the measurements)"
    for formula, compared in measured(AFTER).items():
        if kept := with_peaks(compared, "cnn"):
            yield f"`{formula}` {errors(kept)}"


def _programs() -> str:
    """How many bundled programs are equal, before and after rules were learned from them."""
    found = list(agreement.program_rows())
    plain = sum(row[2] == "0" for row in found)
    learned = [row for row in found if row[6] != "0"]
    other = [f"`{row[0]}` {row[7]}" for row in learned if row[7] != "0"]
    return (
        f"equal in {plain}; with rules learned from these recordings, in"
        f" {len(found) - len(learned)}. The other {len(learned)} differ in workspaces of"
        f" convolutions, for which the formula `transposed` was used; peak reserved:"
        f" {', '.join(other)}, the others equal"
    )


def _number(text: str) -> int:
    return int(text.replace(",", ""))


PARTS: dict[str, Callable[..., str]] = {
    function.__name__: function
    for function in (claims, *truth.PARTS, *rounds.PARTS, *comparisons.PARTS)
}


def main() -> None:
    """Write the parts of all pages."""
    for page in PAGES:
        page.write_text(written(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
