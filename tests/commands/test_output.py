# SPDX-License-Identifier: Apache-2.0
"""A command's results are shown and kept, regardless of the state of standard output and files."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.text import Text

from allocbench.commands import COMMANDS
from allocbench.output import terminal
from allocbench.reports.page import html
from allocbench.reports.rows import bundle
from tests.commands import QUICK, folder, python, run

__all__ = ["folder"]  # the fixture, by its import

FEW = f"--allocators bfc,naive {QUICK}"
SHOWN = [
    "--help",
    "list workloads",
    "inspect good.csv",
    f"compare good.csv {FEW}",
    "explain good.csv --device sim:2MiB",
    f"replay good.csv --allocator bfc {QUICK}",
    "plan good.csv --planner best_fit",
]
"""Commands whose output together has every character of tables and pictures."""
END = "end of a command\n"
ALL = f"""
import sys
from allocbench.cli import app

for line in sys.argv[1:]:
    try:
        app(line.split(), prog_name="allocbench")
    except SystemExit as end:
        assert not end.code, line
    sys.stdout.write({END!r})
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate folder for temporary files."""
    path = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(path))
    return path


def without_times(text: str) -> list[str]:
    return re.sub(r"[\d.]+ [nmu]?s ", "", text).split()


def shown(line: str, encoding: str) -> bytes:
    environment = os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "100"}
    ended = subprocess.run(python(*line.split()), env=environment, capture_output=True)
    assert ended.stderr == b""
    assert ended.returncode == 0
    return ended.stdout


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_every_encoding_has_the_letters(encoding: str) -> None:
    """All commands run in one process of that encoding."""
    ended = subprocess.run(
        [sys.executable, "-c", ALL, *SHOWN],
        env=os.environ | {"PYTHONIOENCODING": encoding, "COLUMNS": "100"},
        capture_output=True,
    )
    assert ended.stderr == b""
    assert ended.returncode == 0
    texts = ended.stdout.decode(encoding).split(END)
    assert len(texts) == len(SHOWN) + 1
    for line, text in zip(SHOWN, texts, strict=False):
        assert len(text) > 200, line
        assert "?" not in text.replace("fragmented?", ""), line


@pytest.mark.parametrize(
    "line",
    [
        f"compare gpt2-train --allocators bfc,naive,caching:expandable_segments=true {QUICK}",
        "fit gpt2-train --allocators bfc,caching --time-limit 0",
        "inspect gpt2-train",
        "explain gpt2-train --device sim:6GiB",
        f"replay gpt2-train --allocator bfc {QUICK}",
        "plan gpt2-train --planner best_fit",
        "diff gpt2-train moe-train",
        "list",
    ],
)
def test_tables_fit_60_columns_and_cut_nothing(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    ended = run(line)
    assert ended.exit_code == 0
    assert [row for row in ended.stdout.splitlines() if len(row.rstrip()) > 60] == []
    assert "…" not in ended.stdout


@pytest.mark.parametrize("command", [one.name for one in COMMANDS])
def test_the_help_of_a_command_cuts_nothing(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = run(f"{command} --help").stdout
    assert "Usage: allocbench" in shown
    assert "…" not in shown


def test_no_text_on_a_console_sends_commands_to_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = terminal.plain_table("", "")
    table.add_row(Text("a\x1b[2Jb\x9b\u202ec\nlonger than that"))
    terminal.console().print(table)
    assert capsys.readouterr().out.split("\n")[0].rstrip() == "a?[2Jb??c"


def test_a_replay_is_readable_in_40_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = run(f"replay good.csv --allocator bfc {QUICK}").stdout.splitlines()
    assert wide[1].split() == ["metric", "value", "exactly"]
    monkeypatch.setenv("COLUMNS", "40")
    narrow = run(f"replay good.csv --allocator bfc {QUICK}").stdout.splitlines()
    assert narrow[1].split() == ["metric", "value"]
    assert [row.split("  ")[0] for row in narrow[3:]] == [row.split("  ")[0] for row in wide[3:]]
    (peak,) = (row for row in narrow if row.startswith("peak reserved"))
    assert peak.split()[2:] == ["6.00", "MiB"]


def test_pictures_fit_60_columns_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    bars = [
        row for row in run("explain gpt2-train --device sim:6GiB").stdout.splitlines() if "|" in row
    ]
    assert len(bars) > 5
    assert all(row.rstrip().endswith("|") for row in bars)
    plot = run("inspect gpt2-train").stdout.splitlines()[-9:]
    monkeypatch.setenv("COLUMNS", "100")
    wide = run("inspect gpt2-train").stdout.splitlines()[-9:]
    assert len(plot[-2].rstrip()) == 60  # the last event is there, as on a wider terminal
    assert len(wide[-2].rstrip()) == 83


def test_files_for_other_programs_are_utf_8() -> None:
    for option in ("--html -", "--json -"):
        line = f"compare good.csv {FEW} {option}"
        assert shown(line, "ascii").decode("utf-8").rstrip().endswith(("</html>", "]"))


@pytest.mark.parametrize(
    "line", ["--help", f"compare good.csv {FEW} --json -", f"compare good.csv {FEW} --html -"]
)
def test_a_full_standard_output_is_one_line_and_rows_are_kept(line: str) -> None:
    """Other commands are in test_surroundings.py."""
    environment = os.environ | {"TMPDIR": str(Path.cwd())}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            python(*line.split()), env=environment, stdout=full, stderr=subprocess.PIPE, text=True
        )
    told = "error: standard output: cannot write: No space left on device"
    assert ended.stderr.startswith(told)
    assert ended.stderr.count("\n") == 1
    assert ended.returncode == 2
    kept = list(Path().glob("allocbench-*.zip"))
    assert len(kept) == line.endswith(" -") * line.startswith("compare")
    assert all(bundle.read(path).rows["allocator"].tolist() == ["bfc", "naive"] for path in kept)


CLOSED = "error: standard output: cannot write: it is closed\n"


@pytest.mark.parametrize(
    ("line", "closed", "code", "told"),
    [
        ("--version", ">&-", 2, CLOSED),
        ("inspect good.csv", ">&- <&-", 2, CLOSED),
        ("convert good.csv -o -", ">&-", 2, CLOSED),
        ("convert good.csv -o new.csv", ">&- <&-", 0, ""),
        ("convert good.csv -o new.csv", "<&- >&- 2>&-", 0, ""),
        ("inspect -", "<&-", 2, "error: standard input: Bad file descriptor\n"),
        ("inspect text.csv", "2>&-", 2, ""),
        ("inspect text.csv", "2>/dev/full", 2, ""),
    ],
)
def test_a_process_without_standard_streams(line: str, closed: str, code: int, told: str) -> None:
    """A file that is written never gets the number of a closed stream."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *python(*line.split())]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (code, "", told)
    if "new.csv" in line:
        assert Path("new.csv").read_bytes() == Path("good.csv").read_bytes()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("inspect random:allocs=3", ""),
        ("convert random:allocs=3 -o new.csv", "the current folder no longer exists"),
        (f"compare random:allocs=3 --allocators naive {QUICK}", "the current folder no longer"),
    ],
)
def test_a_folder_that_is_deleted_meanwhile(line: str, told: str, folder: Path) -> None:
    command = ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh"]
    ended = subprocess.run([*command, *python(*line.split())], capture_output=True, text=True)
    assert ended.returncode == (2 if told else 0)
    assert ended.stderr.startswith(f"error: {told}" if told else "")
    assert ended.stderr.count("\n") == bool(told)


@pytest.mark.parametrize(
    ("line", "shown"),
    [("--help", "Usage: allocbench"), ("inspect --help", "Show"), ("inspect good.csv", "good")],
)
def test_python_without_docstrings(line: str, shown: str) -> None:
    environment = os.environ | {"PYTHONOPTIMIZE": "2"}
    ended = subprocess.run(
        python(*line.split()), env=environment, capture_output=True, text=True, check=True
    )
    assert shown in ended.stdout


@pytest.mark.parametrize(
    ("line", "extension"),
    [
        (f"compare good.csv {FEW} --html /dev/full", ".zip"),
        (f"compare good.csv {FEW} --json /dev/full --html report.html", ".zip"),
        (f"replay good.csv --allocator bfc {QUICK} --json /dev/full", ".json"),
        (f"replay good.csv --allocator bfc {QUICK} --perfetto /dev/full", ".json"),
        ("fit good.csv --allocators bfc --time-limit 0 --json /dev/full", ".json"),
        ("explain good.csv --device sim:2MiB --json /dev/full", ".json"),
        ("plan good.csv --planner best_fit -o /dev/full", ".csv"),
        ("diff good.csv good.parquet --json /dev/full", ".json"),
    ],
)
def test_results_that_cannot_be_written_are_shown_and_kept(
    line: str, extension: str, temporary: Path
) -> None:
    ended = run(line)
    (kept,) = temporary.iterdir()
    told = "error: /dev/full: cannot write: No space left on device; the results are kept in"
    assert ended.stderr == f"{told} {kept}\n"
    assert ended.exit_code == 2
    assert kept.suffix == extension
    expected = run(line.replace("/dev/full", "written"))
    assert expected.exit_code == 0
    without_times = [
        re.sub(r"[\d.]+ [nmu]?s ", "", text) for text in (ended.stdout, expected.stdout)
    ]
    assert without_times[0].split() == without_times[1].split()
    if line.startswith("compare"):
        rows = bundle.read(kept).rows
        assert list(rows["allocator"]) == ["bfc", "naive"]
        assert Path("report.html").exists() == ("report.html" in line)
    elif extension == ".json":
        assert json.loads(kept.read_text())


def test_a_report_that_fails_loses_nothing(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("of a chart")

    monkeypatch.setattr(html, "write", broken)
    ended = run(f"compare good.csv {FEW} --html report.html")
    (kept,) = temporary.iterdir()
    assert isinstance(ended.exception, KeyError)
    assert ended.exception.__notes__ == [f"the results are kept in {kept}"]
    assert "naive" in ended.stdout
    assert list(bundle.read(kept).rows["allocator"]) == ["bfc", "naive"]
