# SPDX-License-Identifier: Apache-2.0
"""Predicted and measured peaks: the benchmark's tables, and a few rows of the real ones.

The rows are those of xMem (arXiv 2510.21048, MIT license). Its programs need an environment that
`make truth` makes; tests of them are skipped without it.
"""

import json
import sys
from pathlib import Path

import pytest

from benchmarks.workshop.truth import environment, perceptrons, predict, report
from benchmarks.workshop.truth.__main__ import main
from benchmarks.workshop.truth.predict import device
from benchmarks.workshop.truth.rows import Prediction, Row, Run, TruthError, read

COLUMNS = (
    "experiment,kind,model,optimizer,batch,zero_grad_mode,gpu,gpu_total_bytes,torch,"
    "truth_bytes,truth_oom,xmem_bytes,xmem_oom\n"
)
RTX_3060 = "NVIDIA-GeForce-RTX-3060,12622168064,2.6.0+cu124"
OPT = f"m,transformer,facebook/opt-125m,AdamW,38,,{RTX_3060},8906604544,false,9332326400,false\n"
T5 = f"m,transformer,T5-small,AdamW,36,,{RTX_3060},7465861120,false,7272923136,false\n"
TOO_LARGE = f"m,transformer,T5-small,AdamW,68,2,{RTX_3060},12366905344,true,11936989184,true\n"
CONVNEXT = f"m,cnn,ConvNeXtTiny,SGD,200,,{RTX_3060},3319791616,false,3523215360,false\n"
UNKNOWN = f"m,cnn,NoSuchNet,SGD,5,,{RTX_3060},1000,false,1100,false\n"
KEYS = {"median_error", "p90_error", "oom_agreement", "oom_missed"}


def table(folder: Path, *rows: str) -> Path:
    path = folder / "rows.csv"
    path.write_text(COLUMNS + "".join(rows), encoding="utf-8")
    return path


def test_predictions_are_close_to_measurements(tmp_path: Path) -> None:
    if not (environment.FOLDER / environment.USUAL / ".done").exists():
        pytest.skip("no models in build/truth: make truth")
    told = ["--rows", str(table(tmp_path, OPT, T5, TOO_LARGE, CONVNEXT, UNKNOWN))]
    assert main([*told, "--json", str(tmp_path / "out.json")]) == 0
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    for kind in ("all", "transformer", "cnn"):
        assert set(found[kind]) >= KEYS
    assert found["transformer"]["median_error"] < 0.005
    assert found["transformer"]["p90_error"] < 0.03
    assert found["cnn"]["median_error"] < 0.02
    assert {row["dtype"] for row in found["rows"] if "dtype" in row} == {"float32"}
    assert (found["all"]["oom_agreement"], found["all"]["oom_missed"]) == (1, 0)
    assert [row["predicted_oom"] for row in found["rows"]] == [False, False, True, False, None]
    reason = "model NoSuchNet is not one of torchvision's networks that classify images"
    assert found["rows"][-1]["why_not"] == reason
    assert found["estimators"]["xmem"]["rows"] == 5


@pytest.mark.parametrize(("ran_out", "said"), [("false", False), ("true", True)])
def test_a_peak_is_predicted_above_the_first_sample(
    tmp_path: Path, ran_out: str, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = f'{{"reserved": 100, "first_sample": 30, "oom": {ran_out}, "dtype": "bfloat16"}}'
    (tmp_path / "cnn.py").write_text(f"print({told!r})", encoding="utf-8")
    monkeypatch.setattr(predict, "PROGRAMS", tmp_path)
    monkeypatch.setattr(predict, "python", lambda _version: Path(sys.executable))
    run = Run("cnn", "VGG16", "SGD", 1, 0, "RTX 3060", 0, "")
    expected = Prediction(70, said, 30, 70, "bfloat16")
    assert predict.predict(run, "", "") == expected
    row = Row(2, run, Prediction(80, False), {})
    (note,) = (line for line in report.lines([report.Outcome(row, expected)]) if "note" in line)
    assert note == "note: VGG16 is trained in bfloat16, the torch_dtype of its config.json"


def test_rows_are_read_with_their_defaults(tmp_path: Path) -> None:
    first, second = read(table(tmp_path, OPT, TOO_LARGE))
    assert (first.run.batch, first.run.zero_grad_mode, first.run.memory) == (38, 0, 12_622_168_064)
    assert (first.run.torch, first.truth) == ("2.6.0", Prediction(8_906_604_544, False))
    assert first.others == {"xmem": Prediction(9_332_326_400, False)}
    assert (second.run.zero_grad_mode, second.truth.oom, second.line) == (2, True, 3)


def test_rows_may_come_from_a_program_that_writes_floats_and_leave_cells_empty(
    tmp_path: Path,
) -> None:
    floats = "\ufeff" + COLUMNS + OPT.replace(",38,,", ",38.0,1.0,").replace("false", "False")
    no_peak = TOO_LARGE.replace("12366905344,true", ",True").replace(",12622168064,", ",,")
    path = tmp_path / "rows.csv"
    path.write_text(floats + no_peak, encoding="utf-8")
    first, second = read(path)
    assert (first.run.batch, first.run.zero_grad_mode, first.truth.oom) == (38, 1, False)
    assert (second.truth, second.run.memory) == (Prediction(0, True), 0)
    assert device(first.run) == "null:NVIDIA-GeForce-RTX-3060,memory=12622168064"
    assert device(second.run, "context=1GiB") == "null:NVIDIA-GeForce-RTX-3060,context=1GiB"


def test_rows_that_cannot_be_predicted_have_a_reason_and_do_not_end_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "FOLDER", tmp_path)
    (tmp_path / environment.USUAL).mkdir()
    (tmp_path / environment.USUAL / ".done").touch()
    wrong = (
        OPT.replace("2.6.0", "1.0.0"),
        OPT.replace("transformer", "rnn"),
        OPT.replace(",38,", ",0,"),
        OPT.replace("NVIDIA-GeForce-RTX-3060", "GTX-9999"),
        OPT.replace("NVIDIA-GeForce-RTX-3060", '"GTX, 9999"'),
    )
    path = str(table(tmp_path, *wrong))
    assert main(["--rows", path, "--jobs", "1", "--json", str(tmp_path / "out.json")]) == 2
    assert capsys.readouterr().err.startswith("error: no row could be predicted: torch 1.0.0: ")
    found = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    reasons = [row["why_not"] for row in found["rows"]]
    assert reasons[1] == "kind 'rnn' is not one of cnn, transformer"
    assert reasons[2] == "batch=0 is less than 1"
    assert reasons[3].startswith("'GTX-9999' is not a card that the null GPU supports")
    assert reasons[4].startswith("'null:GTX, 9999,memory=12622168064'")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (COLUMNS + OPT.replace("false", "maybe", 1), "truth_oom='maybe' is neither true nor false"),
        ("kind,model\ncnn,VGG16\n", "has no column optimizer, batch"),
        (COLUMNS, "has no rows"),
        (COLUMNS + OPT.replace(",38,", ",many,"), "line 2: batch='many' is not a whole number"),
        (COLUMNS + OPT.replace("8906604544", ""), "line 2: no truth_bytes"),
    ],
)
def test_a_wrong_table_is_one_line(
    tmp_path: Path, text: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TruthError, match=line):
        read(path)
    assert main(["--rows", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_a_missing_table_says_how_to_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "rows.csv"
    monkeypatch.setattr("benchmarks.workshop.truth.__main__.ROWS", missing)
    assert main([]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {missing} is not there: name a table with --rows FILE.csv")
    other = tmp_path / "other.csv"
    assert main(["--rows", str(other)]) == 2
    assert capsys.readouterr().err == f"error: {other}: No such file or directory\n"


def test_a_torch_that_nobody_tried_is_named() -> None:
    with pytest.raises(TruthError, match=r"torch 1\.0: the versions tried are 2\.5\.1, 2\.6\.0"):
        environment.python("1.0")


def test_scores_are_of_errors_and_of_verdicts() -> None:
    def outcome(predicted: int, measured: int, says: bool, did: bool) -> report.Outcome:
        truth = Prediction(measured, did)
        row = Row(2, Run("cnn", "VGG16", "SGD", 1, 0, "GPU", 1, ""), truth, {})
        return report.Outcome(row, Prediction(predicted, says))

    found = report.groups(
        [
            outcome(110, 100, False, False),
            outcome(98, 100, False, False),
            outcome(101, 100, True, False),
            outcome(50, 100, False, True),
        ]
    )
    assert found["cnn"] == found["all"]
    assert found["all"]["median_error"] == pytest.approx(0.02)
    assert found["all"]["p90_error"] == pytest.approx(0.084)
    assert found["all"]["too_low"] == pytest.approx(1 / 3)
    assert (found["all"]["oom_agreement"], found["all"]["oom_missed"]) == (0.5, 1)
    assert found["transformer"]["median_error"] is None


def test_perceptrons_are_compared_above_the_base_that_the_first_row_gives() -> None:
    mib = 1 << 20
    rows = [(1000, 100), (1200, 300), (2000, 1080), (1500, 600)]
    found = perceptrons.scores(
        [{"measured_mib": float(measured), "reserved": size * mib} for measured, size in rows]
    )
    assert (found["rows"], found["base_mib"]) == (3, 900)
    assert found["median_error"] == pytest.approx(0)
    assert found["worst_error"] == pytest.approx(20 / 2000)
    assert found["p90_error"] == pytest.approx(0.8 * 20 / 2000)


def test_a_row_has_the_errors_that_others_published_for_it(tmp_path: Path) -> None:
    (row,) = read(table(tmp_path, OPT))
    told = report.as_json([report.Outcome(row, Prediction(8_906_604_544, False))])["rows"][0]
    assert told["others"] == {"xmem": (9_332_326_400 - 8_906_604_544) / 8_906_604_544}
