# SPDX-License-Identifier: Apache-2.0
"""What looks like a secret in a command line is hidden, and names of any length are one line."""

from pathlib import Path

import pytest

from allocbench.base.children import refusal
from allocbench.base.error_text import Amount, exact
from allocbench.base.text import MOST_LETTERS, command_text, one_line, without_secrets


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
