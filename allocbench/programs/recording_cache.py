# SPDX-License-Identifier: Apache-2.0
"""Stored recordings of programs, and whether what they depend on is unchanged.

An entry is a folder with `about.json` and a Parquet file for each trace; it appears whole or not at
all. Its name is a digest of everything known before the program runs, the environment included. The
files that the program read are known only afterwards: `about.json` has a digest of each.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocbench.base.files import cache, keep_newest
from allocbench.workloads import Trace, read, write
from allocbench.workloads.recording import Opened

_MOST = 100  # entries
_LARGE = 1 << 20  # bytes: a larger file counts as changed if its size or time differs
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib/python3")
_SITE = re.compile(r".*?/(?:site|dist)-packages(?=/)")
_PACKAGES = (".dist-info", ".egg-info", ".egg-link", ".pth")
_OF_A_SESSION = re.compile(
    r"_|(?:OLD)?PWD|SHLVL|PS[0-4]|PROMPT_(?:COMMAND|DIRTRIM)|COLUMNS|LINES|STY|INVOCATION_ID"
    r"|HIST(?:FILE|SIZE|FILESIZE|CONTROL|IGNORE|TIMEFORMAT)|(?:COLOR)?TERM|TERM(?:CAP|INFO)"
    r"|TERM(?:INFO_DIRS|_PROGRAM(?:_VERSION)?|_SESSION_ID)|(?:WAYLAND_)?DISPLAY|WINDOW(?:ID|PATH)"
    r"|SSH_(?:CLIENT|CONNECTION|TTY|AUTH_SOCK|AGENT_PID)|GPG_(?:AGENT_INFO|TTY)|XAUTHORITY"
    r"|XDG_(?:SESSION\w*|VTNR|SEAT\w*)|DBUS_\w+|DESKTOP_(?:SESSION|STARTUP_ID)|JOURNAL_STREAM"
    r"|(?:VTE|TMUX|GNOME|SYSTEMD|VSCODE|ITERM|KITTY|WEZTERM|PYTEST)_\w+|TMUX"
)
"""Variables that differ between terminals, sessions and tests, and that no program depends on."""
_ABOUT = "about.json"


@dataclass(frozen=True)
class Entry:
    """A stored recording of a program. traces: by name. notes: lines for the user.

    out_of_memory: whether a request failed on the card.
    """

    traces: Mapping[str, Trace]
    notes: Sequence[str]
    date: str
    out_of_memory: bool


def lasting(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment variables that a program can depend on."""
    return {name: text for name, text in environment.items() if not _OF_A_SESSION.fullmatch(name)}


def key(known: Any) -> str:
    """The name of the entry for what is known before a program runs (JSON)."""
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:24]


def files_of(command: Sequence[str]) -> list[str]:
    """The files that a command line names, also as `--option=FILE`."""
    words = [part for word in command for part in (word, word.partition("=")[2])]
    return [os.path.abspath(word) for word in words if word and Path(word).is_file()]


def read_and_changed(opened: Iterable[Opened], started: int) -> tuple[set[str], set[str]]:
    """The files that a program read, and those of them that changed after that.

    started: when the program started, ns. A file that came or changed after that, and then again,
    is one that the program writes: it is in neither.
    """
    files, changed = set[str](), set[str]()
    for path, status in opened:
        found = _status(path)
        if found == status:
            files.add(path)
        elif status is None or status[-1] < started:
            changed.add(path)
    return files | {site[0] for path in files if (site := _SITE.match(path))}, changed


def load(name: str) -> Entry | None:
    """The entry with a name, if it is whole and none of the files have changed."""
    try:
        folder = _folder() / name
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        if any(_digest(path) != digest for path, digest in about["files"].items()):
            return None
        traces = dict[str, Trace]()
        for kept in about["traces"]:
            if _content(folder / kept["file"]) != kept["digest"]:
                return None
            traces[kept["name"]] = read(folder / kept["file"])
        os.utime(folder)  # the entries used least recently are removed first
        return Entry(traces, about["notes"], about["date"], about["out_of_memory"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # missing, damaged, or written by something else


def keep(name: str, entry: Entry, files: Iterable[str]) -> None:
    """Store an entry, replacing an older one of the same name. If that fails, nothing is stored.

    The cache has files of allocbench itself, whose names say what is in them.
    """
    root = _folder()
    lasting_files = sorted(path for path in {*files} if not path.startswith(str(cache())))
    try:
        root.mkdir(exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=".partial-", dir=root))
    except OSError:
        return
    try:
        traces = []
        for number, (process, trace) in enumerate(entry.traces.items()):
            file = f"{number}.parquet"
            write(trace, partial / file)
            digest = _content(partial / file)
            traces.append({"name": process, "file": file, "digest": digest})
        about = {
            "traces": traces,
            "notes": list(entry.notes),
            "date": entry.date,
            "out_of_memory": entry.out_of_memory,
            "files": {path: _digest(path) for path in lasting_files},
        }
        (partial / _ABOUT).write_text(json.dumps(about, indent=1), encoding="utf-8")
        shutil.rmtree(root / name, ignore_errors=True)
        partial.rename(root / name)
    except OSError:
        return
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    keep_newest(root, _MOST)


def _folder() -> Path:
    return cache() / "programs"


def _status(path: str) -> tuple[int, int, int] | None:
    """As in `recording.Opened`."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _digest(path: str) -> str:
    """A file's fingerprint: its content, or its size and time if it is large or installed.

    That of a folder are the packages installed there. Empty for a missing file.
    """
    try:
        if os.path.isdir(path):
            packages = sorted(name for name in os.listdir(path) if name.endswith(_PACKAGES))
            return hashlib.sha256("\n".join(packages).encode(errors="replace")).hexdigest()
        status = os.stat(path)
        if _INSTALLED.search(path) or status.st_size > _LARGE:
            return f"{status.st_size}-{status.st_mtime_ns}"
        return _content(path)
    except OSError:
        return ""


def _content(path: str | Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
