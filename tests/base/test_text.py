# SPDX-License-Identifier: Apache-2.0
"""What looks like a secret in a command line is hidden, and names of any length are one line."""

import os
from pathlib import Path

import pytest

from allocbench.base.children import Ended, refusal, run
from allocbench.base.error_text import Amount, exact
from allocbench.base.text import MOST_LETTERS, command_text, one_line, printable, without_secrets
from allocbench.base.units import percent


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (
            ["train.py", "--token", "abc", "--lr", "3"],
            ["train.py", "--token", "HIDDEN", "--lr", "3"],
        ),
        (["x", "--hf_token=abc"], ["x", "--hf_token=HIDDEN"]),
        (["x", "--api-key", "a b c"], ["x", "--api-key", "HIDDEN"]),
        (["env", "HF_TOKEN=abc", "x"], ["env", "HF_TOKEN=HIDDEN", "x"]),
        (["x", "hub.secret=abc", "lr=3"], ["x", "hub.secret=HIDDEN", "lr=3"]),
        (["sh", "-c", "x --password abc --lr 3"], ["sh", "-c", "x --password HIDDEN --lr 3"]),
        (["x", "hf_" + "a" * 34], ["x", "HIDDEN"]),
        (["x", "https://me:abc@host/data"], ["x", "https://HIDDEN@host/data"]),
        (
            ["x", "--wandb-key=abc", "--pass", "abc"],
            ["x", "--wandb-key=HIDDEN", "--pass", "HIDDEN"],
        ),
        (["x", "-H", "Authorization: Bearer ab+/c="], ["x", "-H", "Authorization: Bearer HIDDEN"]),
        (["x", '{"api_key": "abc", "b": 1}'], ["x", '{"api_key": HIDDEN "b": 1}']),
        (["x", "--token", "--verbose"], ["x", "--token", "--verbose"]),
    ],
)
def test_secrets_are_hidden(command: list[str], shown: list[str]) -> None:
    assert without_secrets(command) == shown


@pytest.mark.parametrize(
    "command",
    [
        ["x", "--tokenizer", "gpt2", "--max-tokens", "512", "--tokens=9"],
        ["x", "--key", "batch", "--keys=9", "--passes", "3", "--monkey", "3", "--bearer", "3"],
        ["x", "--prompt", "the secret of a token is a password"],
        ["x", "--image_key", "image", "--data.text-key=a", "--sort_key", "b"],
        ["x", "https://host/a@b", "me@host:file", "hf_model"],
    ],
)
def test_other_words_stay(command: list[str]) -> None:
    assert without_secrets(command) == command


def test_the_text_can_be_given_to_a_shell() -> None:
    assert command_text(["x", "--token", "a b", "c d"]) == "x --token HIDDEN 'c d'"


def test_a_long_name_keeps_its_ends() -> None:
    shown = one_line(f"by a{'x' * 9999}b\nof train.py:7 f")
    assert shown.startswith("by ax")
    assert shown.endswith("xb of train.py:7 f")
    assert [len(word) for word in shown.split()] == [2, MOST_LETTERS, 2, 10, 1]
    fits = "x" * MOST_LETTERS
    assert one_line(f"{fits} {fits}") == f"{fits} {fits}"


def test_why_a_command_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    for name, why in {
        "./here": "./here: you may not execute this file (chmod +x makes it executable)",
        "here": "here: no such program",
        "./missing": "./missing: no such program",
        "./": "./: no such program",
    }.items():
        assert refusal([name, "x"]) == why
    Path("here").chmod(0o755)
    assert refusal(["./here"]) is refusal(["sh", "-c"]) is None


def test_ranges_of_bytes_add_up() -> None:
    one, other = Amount(5, 9), Amount(2, 12)
    assert (one + other, one - other) == (Amount(7, 21), Amount(-7, 7))
    assert ((one - other).at_least_0, one.middle, exact(3)) == (Amount(0, 7), 7, Amount(3, 3))


def test_what_ends_a_command_is_its_exit_code() -> None:
    for script, code in (("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137)):
        assert run(["sh", "-c", script], os.environ) == Ended(code)


def test_what_is_not_printable_is_not_printed() -> None:
    assert printable("naïve text") == "naïve text"
    assert printable("a\x1b[2J\tb\nc\x7f") == "a?[2J?b?c?"
    assert printable("a\x1b\tb\nc", "\n\t") == "a?\tb\nc"


def test_small_shares_are_not_rounded_to_zero() -> None:
    shares = [percent(share) for share in (0, 0.0004999, 0.0005, 0.0015, 1.5, -0.2)]
    assert shares == ["0.0%", "<0.1%", "0.1%", "0.1%", "150.0%", "-20.0%"]
