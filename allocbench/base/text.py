# SPDX-License-Identifier: Apache-2.0
"""Text for a terminal, and command lines as text."""

import re
import shlex
from collections.abc import Iterator, Sequence

_NAMES = (
    r"(?:token|secret|pass(?:w(?:or)?d)?|pwd|passphrase|credentials?"
    r"|(?:api|access|private|secret)[-_.]?key|(?<=[a-z0-9][-_.])key)"
)
_FIELDS = r"(?:image|video|audio|text|caption|prompt|label|target|input|output|data|sort|map)s?"
"""The keys of these are names of fields in data sets."""
_SECRET = rf"(?![\w.-]*(?<![a-z0-9]){_FIELDS}[-_.]key)[\w.-]*(?<![a-z0-9]){_NAMES}"
_SECRET_OPTION = re.compile(rf"-{_SECRET}", re.IGNORECASE)
_SECRET_IN_WORD = re.compile(
    rf"""((?<![\w.-]){_SECRET}(?:=|["']\s*:\s*)|(?<!\S)-{_SECRET}\s+)\S+""", re.IGNORECASE
)
_KEY = re.compile(
    r"\b(?:hf_|gh[a-z]_|github_pat_|glpat-|sk-|xox[a-z]-|AKIA)[\w-]{16,}|(?<=://)[^\s/@]+(?=@)"
    r"|(?i:(?<=bearer )|(?<=authorization: basic ))\S+"
)
"""Keys of well-known services, the user and password of an URL, and what follows in a header."""
_HIDDEN = "HIDDEN"


MOST_LETTERS = 200
"""Of a word: a longer name fills a terminal or a page."""


def upper(words: str) -> str:
    """Words at the beginning of a sentence."""
    return words[:1].upper() + words[1:]


def one_line(text: str) -> str:
    """The text without line breaks and control characters; long words without their middle."""
    half = MOST_LETTERS // 2
    words = (w if len(w) <= MOST_LETTERS else f"{w[:half]}…{w[1 - half :]}" for w in text.split())
    return printable(" ".join(words))


def definitions(text: str) -> Iterator[tuple[str, str]]:
    """The entries of a text: each head, and its definition in the lines below, which four spaces
    indent. A head may go on in lines that two spaces indent.
    """
    for entry in re.split(r"\n+(?! )", text.strip()):
        head, _, definition = entry.partition("\n    ")
        yield " ".join(head.split()), " ".join(definition.split())


def printable(text: str, kept: str = "") -> str:
    """The text with `?` in place of characters that are not printable, such as terminal commands.

    kept: characters that stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else "?" for c in text)


def encodable(text: str) -> str:
    """The text with `?` in place of surrogates, which stand for bytes that are not UTF-8."""
    return text.encode(errors="replace").decode()


def command_text(command: Sequence[str]) -> str:
    """A command line as a text, with HIDDEN in place of what looks like a secret."""
    return shlex.join(without_secrets(command))


def without_secrets(command: Sequence[str]) -> list[str]:
    """The words of a command line, with HIDDEN in place of what looks like a secret.

    These are the values of options and variables that are called a token, a password or a key, and
    words that look like the keys of well-known services.
    """
    words = list[str]()
    hidden = False
    for word in command:
        shown = _KEY.sub(_HIDDEN, _SECRET_IN_WORD.sub(rf"\1{_HIDDEN}", word))
        words.append(_HIDDEN if hidden and not word.startswith("-") else shown)
        hidden = _SECRET_OPTION.fullmatch(word) is not None
    return words
