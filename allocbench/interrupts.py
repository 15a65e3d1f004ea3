# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a command quietly, at any time."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CODE = 130
"""The exit code of an interrupted command: 128 + SIGINT."""
_AGAIN_AFTER = 0.01  # seconds


@contextmanager
def quiet() -> Iterator[None]:
    """Leave with code 130 when the block is interrupted, without a traceback.

    Python raises KeyboardInterrupt between any two instructions, and drops what is raised in a
    callback of a weak reference or in a destructor: an import calls such a callback for every
    module. An interrupt that is dropped is raised again a moment later. After the block an
    interrupt ends the process at once.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = _again(hook)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(CODE)
    except Exception as error:
        if not _interrupted(error):
            raise
        sys.exit(CODE)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.unraisablehook = hook


def _again(hook: Any) -> Any:
    def unraisable(dropped: Any) -> None:
        if not issubclass(dropped.exc_type, KeyboardInterrupt):
            hook(dropped)
            return
        import _thread
        from threading import Timer  # imported late: help and version stay fast

        later = Timer(_AGAIN_AFTER, _thread.interrupt_main)
        later.daemon = True
        later.start()

    return unraisable


def _interrupted(error: BaseException | None) -> bool:
    """Whether an interrupt caused an error, which may have been raised in its place."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False
