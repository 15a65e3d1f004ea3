# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences about agreement with measurements, from the files in benchmarks/results."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.workshop.measured import report as measured_report
from benchmarks.workshop.measured.plan import CONVOLUTIONS, KINDS, LIMITS, ROUNDS, runs
from benchmarks.workshop.measured.report import Compared
from benchmarks.workshop.truth import report
from benchmarks.workshop.truth.rows import Prediction
from docs.generate import agreement

RESULTS = Path(__file__).parent.parent.parent / "benchmarks" / "results"
MEASURED = RESULTS / "h100"
GPU = agreement.FILE.parent.parent
BEFORE, AFTER = "predictions.json", "predictions-after.json"
USUAL = "layout"
"""The null GPU's formula for workspaces of convolutions: published runs are predicted with it."""
FORMULAS = (USUAL, "0", "copies", "spatial")
_CLOSE = 0.003
FAR = 0.05
WITHOUT_ERROR = 5e-5  # 0.00 %
_MIB = 1 << 20


@cache
def result(name: str) -> Any:
    """A JSON file of benchmarks/results."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


@cache
def measured(predictions: str) -> Mapping[str, Sequence[Compared]]:
    """The runs on an H100 with predictions of a file, by formula for convolutions."""
    _, rows = measured_report.read(MEASURED / "measured.jsonl")
    return measured_report.by_formula(runs(), result(f"h100/{predictions}"), rows)


@cache
def later(name: str, predictions: str = BEFORE) -> Sequence[Compared]:
    """The runs of a later round with predictions of a file."""
    _, rows = measured_report.read(RESULTS / name / "measured.jsonl")
    said = result(f"{name}/{predictions}")
    return measured_report.compare(runs(ROUNDS[name]), said, rows, USUAL)


@cache
def published(formula: str = USUAL) -> Mapping[str, Any]:
    """The published runs and their errors, with a formula for workspaces of convolutions."""
    found: Mapping[str, Any] = result(f"published/{formula}.json")
    return found


def with_peaks(found: Iterable[Compared], kind: str = "") -> list[Compared]:
    """The runs, of a kind, that have an error."""
    return [one for one in found if one.error is not None and kind in ("", one.run.kind)]


def errors(found: Sequence[Compared]) -> str:
    """Median and p90 of the errors, in words."""
    scores = report.scores((one.said, one.truth) for one in found if one.said and one.truth)
    return f"median error {_percent(scores['median_error'])}, p90 {_percent(scores['p90_error'])}"


def table(headings: Sequence[str], rows: Iterable[Iterable[str]], right: int = 1) -> str:
    """A Markdown table; the columns from number `right` on are numbers."""
    rule = ["---" if place < right else "---:" for place in range(len(headings))]
    lines = [[*headings], rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def other_card() -> tuple[dict[str, float], list[float], list[bool]]:
    """The runs of the later rounds on an H200, beside those on an H100.

    Returns the differences of reserved peaks by run, where all packages had the same versions;
    those of compiled runs; and whether runs under a limit ended alike.
    """
    same, compiled, alike = dict[str, float](), list[float](), list[bool]()
    for name in ("second", "third"):
        here, there = (
            {row["name"]: row for row in measured_report.read(path)[1] if row.get("result")}
            for path in (RESULTS / name / "measured.jsonl", RESULTS / "h200" / f"{name}.jsonl")
        )
        for run in sorted(here.keys() & there.keys()):
            ours, theirs = here[run]["result"], there[run]["result"]
            peaks = [one["stages"][-1].get("peak_reserved", 0) for one in (theirs, ours)]
            if here[run]["limit"] is not None:
                alike.append(ours["oom"] == theirs["oom"])
            elif ours["versions"] == theirs["versions"] and "compiled" in run:
                compiled.append(peaks[0] / peaks[1] - 1)
            elif ours["versions"] == theirs["versions"]:
                same[run] = peaks[0] / peaks[1] - 1
    return same, compiled, alike


def exactness() -> str:
    """How exact predictions are, in some sentences."""
    every = (measured(BEFORE)[CONVOLUTIONS[0]], later("second"), later("third"))
    rounds = [with_peaks(found) for found in every]
    training = with_peaks(later("second"), "language")
    exact = sum(abs(one.error or 0) < WITHOUT_ERROR for one in training)
    other, *_ = other_card()
    medians = [
        _percent(median([abs(one.error or 0) for one in found]))  # all of them have an error
        for found in rounds
    ]
    return (
        f"How exact is it? The peaks of {sum(map(len, rounds))} other programs were predicted, then"
        f" measured on an H100. In the first round ({len(rounds[0])} programs) the median error is"
        f" {medians[0]}. In the second ({len(rounds[1])} programs), with rules that the first one"
        f" corrected, it is {medians[1]}, and {exact} of {len(training)} training runs of language"
        " models have [no error](#agreement-with-real-gpus). In the third"
        f" ({len(rounds[2])} programs of other kinds), it is {medians[2]}."
        f" [An H200](docs/truth.md#on-an-h200) reserves what an H100 does in"
        f" {[*other.values()].count(0)} of {len(other)} programs."
    )


def null_gpu_exactness() -> str:
    """The same for the page of the null GPU."""
    rows = list(agreement.program_rows())
    plain = sum(row[2] == "0" for row in rows)
    learned = sum(row[6] == "0" for row in rows)
    free, again = with_peaks(measured(BEFORE)[CONVOLUTIONS[0]]), with_peaks(later("second"))
    return (
        f"How close is it to a real GPU? The null GPU was [compared with an H100](#an-h100):"
        f" {plain} of the {len(rows)} bundled programs make the same allocs and frees, with the"
        f" same sizes; {learned} do with rules that were learned from these recordings"
        f" (in-sample). The others differ only in the workspaces of convolutions. The peaks of"
        f" [{len(free)} other runs](truth.md#measured-on-an-h100) were predicted before they were"
        f" measured: {errors(free)}. Rules were corrected then, and"
        f" [{len(again)} more runs](truth.md#a-second-round) were predicted and measured:"
        f" {errors(again)}."
    )


def truth_summary() -> str:
    """The errors of all comparisons in one table."""
    before, after = (measured(name)[CONVOLUTIONS[0]] for name in (BEFORE, AFTER))
    networks = with_peaks(measured(AFTER)[USUAL], "cnn")
    shown = published()
    lines = [
        _predicted("(#measured-on-an-h100), predicted before they were measured", before),
        (
            "in-sample: the first runs, predicted again with"
            " [rules that these measurements corrected](#predicted-again)",
            f"{KINDS['language']}: {errors(with_peaks(after, 'language'))}; {KINDS['cnn']},"
            f" `{USUAL}`: {errors(networks)}",
            "",
        ),
        _predicted(
            "(#a-second-round), predicted with rules that the first ones corrected, before they"
            " were measured",
            later("second"),
        ),
        _predicted(
            "(#a-third-round) of kinds that the other rounds did not have, predicted before they"
            " were measured",
            later("third"),
            (),
        ),
        (
            f"in-sample: [{shown['all']['rows']} published runs on three cards]"
            "(#published-runs-on-three-cards), known before they were predicted",
            "; ".join(f"{name}: {_scored(shown[name])}" for name in ("all", "transformer", "cnn")),
            f"predicted correctly for {_percent(shown['all']['oom_agreement'])}",
        ),
        (
            "[scripts of a public repository](#public-repositories)",
            " to ".join(
                _percent(error) for error in (min(_errors_of_scripts()), max(_errors_of_scripts()))
            ),
            "",
        ),
    ]
    return table(("measurements", "errors", "out of memory"), lines, right=3)


def _predicted(
    called: str, found: Sequence[Compared], shown: Sequence[str] = ("language", "cnn")
) -> tuple[str, str, str]:
    """A row of the summary: runs that were predicted before they were measured, and some kinds."""
    free = with_peaks(found)
    pairs = [(one.said, one.truth) for one in found if one.said and one.truth]
    kinds = {"all": free} | {KINDS[kind]: with_peaks(found, kind) for kind in shown}
    agree = report.scores(pairs)["oom_agreement"]
    return (
        f"[{len(free)} runs on an H100]{called}",
        "; ".join(f"{name}: {errors(some)}" for name, some in kinds.items()),
        f"predicted correctly for {_percent(agree)} of {len(pairs)} runs",
    )


def truth_measured() -> str:
    """The errors of predictions that are older than the measurements."""
    return "\n".join(measured_report.summary(measured(BEFORE)))


def truth_predicted_again() -> str:
    """The errors of predictions that were made when the measurements were known."""
    return "\n".join(measured_report.summary(measured(AFTER)))


def truth_counts() -> str:
    """Exact peaks, limits, and what did not run, of the runs on an H100."""
    found = measured(BEFORE)[CONVOLUTIONS[0]]
    free = with_peaks(found)
    exact = sum(requested(f"h100/{BEFORE}", one) == measured_peak(one) for one in free)
    limited = [one for one in found if one.limit is not None and one.truth]
    said = [[one for one in limited if _is_low(one) is low] for low in (True, False)]
    right = [
        sum(bool(one.truth and one.truth.oom) is low for one in group)
        for group, low in zip(said, (True, False), strict=True)
    ]
    wrong = [
        f"`{one.run.name}`"
        for group, low in zip(said, (True, False), strict=True)
        for one in group
        if bool(one.truth and one.truth.oom) is not low
    ]
    cards = [one for one in found if one.run.name.endswith("-card") and one.truth and one.said]
    same = sum(bool(one.truth and one.said and one.truth.oom == one.said.oom) for one in cards)
    lost = [f"`{one.run.name}`" for one in found if one.trouble]
    return (
        f"*With a peak* counts the runs that neither ran out of memory nor had a limit. In"
        f" {exact} of these {len(free)}, the bytes requested at the peak are exactly the predicted"
        f" ones. Not compared: {', '.join(lost)}.\n\n"
        f"Of the runs with a limit of {LIMITS[0]:.1%} of the capacity that `fit` found,"
        f" {right[0]} of {len(said[0])} ran out of memory. With {LIMITS[1]:.1%}, {right[1]} of "
        f"{len(said[1])} completed. The exceptions are {', '.join(wrong)}. Of the {len(cards)} runs"
        f" that fill the card, {same} ended as predicted."
    )


def truth_causes() -> str:
    """The largest errors, with the workspaces that were measured."""
    noted = result("noted.json")["largest_workspaces"]
    by_name = {one.run.name: one for one in with_peaks(measured(BEFORE)[CONVOLUTIONS[0]])}
    return table(
        ("run", "error", "cause"),
        (
            (f"`{name}`", f"{by_name[name].error:+.2%}", cause.format(f"{size:,} bytes"))
            for name, cause in noted["causes"].items()
            for size in [noted["bytes"][name]]
        ),
        right=3,
    )


def truth_formulas() -> str:
    """The formulas for convolutions on the measured runs, in words."""
    found = {name: with_peaks(each, "cnn") for name, each in measured(AFTER).items()}
    old = {name: one for one in with_peaks(measured(BEFORE)["0"], "cnn") for name in [one.run.name]}
    both = [name for name in (one.run.name for one in found["spatial"]) if name in old]
    exact = [one for one in found[USUAL] if requested(f"h100/{AFTER}", one) == measured_peak(one)]
    near = [
        one
        for one in found[USUAL]
        if one not in exact
        and abs(requested(f"h100/{AFTER}", one) / measured_peak(one) - 1) < _CLOSE
    ]
    return (
        f"Five formulas were tried: {', '.join(f'`{name}`' for name in CONVOLUTIONS)}. The best of"
        f" them on these runs is in-sample. On the {len(both)} networks that `spatial` was"
        f" predicted for, `0` has {errors([old[name] for name in both])}, and `spatial`"
        f" {errors(found['spatial'])}. With `{USUAL}`, {len(exact)} of the {len(found[USUAL])} runs"
        f" without a limit request exactly the measured number of bytes at their peak, and"
        f" {len(near)} more are within {_CLOSE:.1%}. What PyTorch reserves depends on the order and"
        " size of every block, and differs more. No formula predicts the workspaces of"
        " `cudnn.benchmark`."
    )


def truth_context() -> str:
    """Bytes of the card that PyTorch's allocator does not know."""
    _, rows = measured_report.read(MEASURED / "measured.jsonl")
    kinds = {run.name: run for run in runs()}
    beside: dict[str, list[int]] = {}
    context = set()
    for row in rows:
        if "result" not in row or row["limit"] is not None:
            continue
        run, stages = kinds[row["run"]], row["result"]["stages"]
        if run.alone:
            first = next(stage for stage in stages if stage["stage"] == "context")
            context.add(first["total"] - first["free"])
        if own := stages[-1].get("nvml_process"):
            beside.setdefault(KINDS[run.kind], []).append(own - stages[-1]["reserved"])
    sizes = " or ".join(f"{size:,}" for size in sorted(context))
    headings = ("programs", "runs", "least", "median", "most")
    return (
        f"The CUDA context takes {sizes} bytes of this card before the first kernel runs. NVML"
        " attributes to each process, at its end, beside what PyTorch reserved:\n\n"
    ) + table(
        headings,
        (
            (
                kind,
                str(len(found)),
                *(f"{value / _MIB:,.0f} MiB" for value in (min(found), median(found), max(found))),
            )
            for kind, found in beside.items()
        ),
    )


def published_formulas() -> str:
    """Errors of the published convolutional networks by formula and by what is subtracted."""
    return table(
        ("workspaces of convolutions", "first sample with the model", "without the model"),
        (
            (f"`{formula}`", *(_scored(_networks(formula, more)) for more in (False, True)))
            for formula in FORMULAS
        ),
    )


def _networks(formula: str, with_sample: bool) -> dict[str, Any]:
    """Scores of the convolutional networks; with_sample: nothing is subtracted."""
    rows = [row for row in published(formula)["rows"] if row["kind"] == "cnn"]
    return report.scores(
        (
            Prediction(
                row["predicted_bytes"] + row["first_sample"] * with_sample, row["predicted_oom"]
            ),
            Prediction(row["truth_bytes"], row["truth_oom"]),
        )
        for row in rows
    )


def published_errors() -> str:
    """Scores of the published runs: all, by kind, by model."""
    shown = published()
    groups = {kind: shown[kind] for kind in (report.EVERY, "transformer", "cnn")}
    parts = (report.table("rows", groups), report.table("model", shown["families"]))
    return "\n\n".join("\n".join(part) for part in parts)


_COMMANDS = {
    "xmem": "published with the runs",
    "dnnmem": "published with the runs",
    "schedtune": "published with the runs",
    "llmem": "published with the runs",
    "fakegpu": "`fakegpu.memory_estimator.estimate_module_memory`, commit 7d5cf83",
    "mem_tracker": "`torch.distributed._tools.MemTracker` on fake tensors, as in torchtitan",
    "accelerate": "`accelerate estimate-memory` 1.15.0: training with Adam, float32",
    "deepspeed": "`estimate_zero2_model_states_mem_needs` 0.19.8: one GPU, no offloading",
}


def published_peers() -> str:
    """Other estimators on the published runs, beside allocbench on the same ones."""
    rows = {str(row["line"]): row for row in published()["rows"] if row["error"] is not None}
    said: dict[str, dict[str, float]] = {name: {} for name in _COMMANDS}
    for line, row in rows.items():
        for name, error in row["others"].items():
            said[name][line] = error
        for name, bytes_said in result("published/peers.json")["rows"].get(line, {}).items():
            if name in said and isinstance(bytes_said, int):
                peak = bytes_said - row["first_sample"]
                said[name][line] = peak / row["truth_bytes"] - 1
    headings = ("estimator", "how it was asked", "runs", "median error", "p90", "too low")
    agreements = published()["estimators"]
    return table(
        (
            *(*headings, "OOM agreement", "allocbench on the same runs"),
            "runs in which it is closer than allocbench",
        ),
        (
            (
                *(name, _COMMANDS[name], str(len(found))),
                _percent(median(map(abs, found.values()))),
                _percent(report.percentile([*map(abs, found.values())], 0.9)),
                _percent(sum(error < 0 for error in found.values()) / len(found)),
                _percent(agreements.get(name, {}).get("oom_agreement")),
                _percent(median(abs(rows[line]["error"]) for line in found)),
                str(sum(abs(error) < abs(rows[line]["error"]) for line, error in found.items())),
            )
            for name, found in said.items()
            if found
        ),
        right=2,
    )


def published_perceptrons() -> str:
    """The perceptrons of GPUMemNet, in words."""
    found = result("published/perceptrons.json")
    least, most = (f"{size:,.0f}" for size in found["measured_mib"])
    return (
        f"GPUMemNet (arXiv 2602.17817) publishes training runs that were measured on an A100, under"
        f" CC BY 4.0. {found['rows']:,} of its multilayer perceptrons were trained on a null A100"
        f" with PyTorch {found['torch']}. The published number is what the whole card has in use,"
        f" {least} to {most} MiB. What it has beside PyTorch was taken from one other row:"
        f" {found['base_mib']:,.0f} MiB. With what PyTorch reserves on the null GPU added, the"
        f" median error is {_percent(found['median_error'])} ({found['median_mib']:.0f} MiB), the"
        f" p90 {_percent(found['p90_error'])}, and the largest {_percent(found['worst_error'])}."
    )


def published_rows() -> str:
    """Every published run."""
    headings = (
        *("model", "optimizer", "batch", "GPU", "measured MiB", "predicted MiB", "error", "OOM"),
    )
    return table(headings, map(_published_row, published()["rows"]), right=4)


def _published_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    truth = Prediction(row["truth_bytes"], row["truth_oom"])
    said = Prediction(row["predicted_bytes"], row["predicted_oom"])
    return (
        *(row["model"], row["optimizer"], str(row["batch"]), row["gpu"].removeprefix("NVIDIA-")),
        *(f"{truth.peak / _MIB:,.0f}", f"{said.peak / _MIB:,.0f}"),
        "" if row["error"] is None else f"{row['error']:+.2%}",
        report.who_ran_out(said, truth),
    )


def published_ranges() -> str:
    """The published runs whose answer is a range, and how many of their peaks are in it."""
    rows = [
        row
        for row in published()["rows"]
        if row["error"] is not None and row["most_bytes"] > row["predicted_bytes"]
    ]
    low = [row for row in rows if row["error"] < -FAR]
    within = sum(row["truth_bytes"] <= row["most_bytes"] for row in low)
    wide = median(row["most_bytes"] / row["predicted_bytes"] - 1 for row in rows)
    headings = ("model", "batch", "GPU", "measured MiB", "range in MiB")
    return (
        f"{len(rows)} rows have a range, whose upper end is {wide:.0%} above the lower one in the"
        f" median. {len(low)} of them are predicted more than {FAR:.0%} too low, and the range"
        f" contains the measurement in {within}:\n\n"
    ) + table(
        headings,
        (
            (
                *(row["model"], str(row["batch"]), row["gpu"].removeprefix("NVIDIA-")),
                f"{row['truth_bytes'] / _MIB:,.0f}",
                f"{row['predicted_bytes'] / _MIB:,.0f} to {row['most_bytes'] / _MIB:,.0f}",
            )
            for row in low
        ),
        right=3,
    )


def public_repositories() -> str:
    """Scripts of public repositories beside the peaks that their authors published."""
    return table(
        ("repository, commit", "script", "published GB", "predicted GB", "error"),
        (
            (row["repository"], row["script"], *_beside(row))
            for row in result("noted.json")["public_repositories"]["rows"]
        ),
        right=2,
    )


def public_repositories_copied() -> str:
    """The same with the copy that flash attention of PyTorch 2.1 led to."""
    noted = result("noted.json")["public_repositories"]
    last = noted["with_two_temporaries"]
    rows = ((row["script"], *_beside(row)) for row in noted["with_the_copy"])
    return table(
        ("script", "published GB", "predicted GB with the copy", "error"),
        [*rows, (f"{last['script']}, and two temporaries of Adam", *_beside(last))],
    )


def _beside(row: Mapping[str, Any]) -> tuple[str, str, str]:
    if row["published"] is None:
        return "-", f"{row['predicted']:.2f}", "-"
    error = row["predicted"] / row["published"] - 1
    return f"{row['published']:.2f}", f"{row['predicted']:.2f}", f"{error:+.1%}"


def _errors_of_scripts() -> list[float]:
    rows = result("noted.json")["public_repositories"]["rows"]
    return [abs(row["predicted"] / row["published"] - 1) for row in rows if row["published"]]


def requested(predictions: str, one: Compared) -> int:
    """The bytes requested at the peak, as predicted."""
    said = result(predictions)["runs"][one.run.name][one.formula]
    return int(said["stages"]["end"]["peak_requested"])


def measured_peak(one: Compared) -> int:
    """The bytes requested at the peak, as measured."""
    return int(one.measured["stages"][-1]["peak_requested"])


def _is_low(one: Compared) -> bool:
    """Whether the limit of a run is the lower one."""
    said = result(f"h100/{BEFORE}")["runs"][one.run.name][one.formula]
    return bool(one.limit is not None and one.limit < said["min_capacity"])


def _scored(scores: Mapping[str, Any]) -> str:
    return f"median error {_percent(scores['median_error'])}, p90 {_percent(scores['p90_error'])}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"


PARTS = (
    exactness,
    null_gpu_exactness,
    truth_summary,
    truth_measured,
    truth_predicted_again,
    truth_counts,
    truth_causes,
    truth_formulas,
    truth_context,
    published_formulas,
    published_errors,
    published_peers,
    published_perceptrons,
    published_rows,
    published_ranges,
    public_repositories,
    public_repositories_copied,
)
"""What stands on pages between the marks of `docs.generate.claims`."""
