# SPDX-License-Identifier: Apache-2.0
"""The picture of the README: which batches of a program fit which cards.

    python -m docs.generate.batch_by_cards --python PATH

PATH is a Python with a CUDA build of PyTorch. `docs/example/train.py` runs on a null H200 with each
batch; its trace is then replayed with the memory of each card, with PyTorch's default settings and
with expandable segments.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from allocbench.base.cards import find
from allocbench.programs.program import ProgramSettings, ProgramWorkload, load
from allocbench.replays.runner import Runner

ROOT = Path(__file__).parents[2]
PROGRAM = Path("docs/example/train.py")
PICTURE = ROOT / "docs" / "batch-by-cards.svg"
BATCHES = (1, 2, 4, 6, 8, 10, 12, 16, 24, 32)
CARDS = (
    "rtx-4060-8gb",
    "rtx-4070-12gb",
    "t4-16gb",
    "rtx-4080-16gb",
    "l4-24gb",
    "rtx-4090-24gb",
    "rtx-5090-32gb",
    "a100-40gb",
    "l40s-48gb",
    "h100-sxm-80gb",
)
DEFAULT, SETTING = "caching", "caching:expandable_segments=true"
OUTCOMES = {  # word -> color that people who do not see red and green can tell apart
    "does not fit": "#f2f2ef",
    "with expandable segments": "#8fb7dd",
    "fits": "#1f5f99",
}


def outcomes(python: str) -> pd.DataFrame:
    """The place in OUTCOMES of each batch (columns) on each card (rows)."""
    columns = {}
    for batch in BATCHES:
        command = (python, str(ROOT / PROGRAM), "--batch", str(batch))
        settings = ProgramSettings(device="null:h200", quiet=True)
        run = Runner(load(ProgramWorkload(command, settings)), "sim:1TiB")
        columns[batch] = {
            card.name: _outcome(run, card.free) for slug in CARDS for card in find(slug)
        }
    return pd.DataFrame(columns)


def _outcome(run: Runner, capacity: int) -> int:
    if run.completes(DEFAULT, capacity):
        return 2
    return int(run.completes(SETTING, capacity))


def draw(found: pd.DataFrame) -> Figure:
    """The picture."""
    figure = Figure(figsize=(7.2, 3.9), layout="constrained")
    axes = figure.subplots()
    colors = ListedColormap(list(OUTCOMES.values()))
    sns.heatmap(found, cmap=colors, vmin=0, vmax=2, cbar=False, linewidths=1.5, ax=axes)
    axes.set(xlabel="batch", ylabel="")
    axes.tick_params(length=0, rotation=0)
    handles = [
        Patch(facecolor=color, edgecolor="#9aa5b1", label=word) for word, color in OUTCOMES.items()
    ]
    axes.legend(
        handles=handles[::-1], ncols=3, loc="lower left", bbox_to_anchor=(0, 1), frameon=False
    )
    return figure


def main() -> None:
    """Write the picture."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.generate.batch_by_cards", description=__doc__
    )
    parser.add_argument("--python", required=True, help="with a CUDA build of PyTorch")
    mpl.rcParams["svg.hashsalt"] = PICTURE.stem
    found = outcomes(parser.parse_args().python)
    print(found.to_string())
    draw(found).savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
