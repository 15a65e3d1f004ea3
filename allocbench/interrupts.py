# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and a closed terminal end a command quietly, at any time."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

CODE = 128 + int(signal.SIGINT)
"""The exit code of an interrupted command."""
_AGAIN_AFTER = 0.01  # seconds
_TERMINATING = (signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """The process got SIGINT.

    After a KeyboardInterrupt itself in code that `exec` compiled, such as that of a dataclass,
    Python would end the process by SIGINT, whatever its exit code.
    """


class Terminated(SystemExit):
    """The process got SIGTERM, or SIGHUP because its terminal is gone."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


@contextmanager
def quiet() -> Iterator[None]:
    """Leave with code 128 + N when the block gets signal N: SIGINT, SIGTERM or SIGHUP.

    A signal that the process was started to ignore, as by nohup, stays ignored. Any other leaves
    the block as an exception, so that it cleans up, and shows no traceback. Python raises it
    between any two instructions, and drops what is raised in a callback of a weak reference or in a
    destructor: an import calls such a callback for every module. A signal that is dropped is sent
    again a moment later. After the block a signal ends the process at once.
    """
    hook = sys.unraisablehook
    sys.unraisablehook = _again(hook)
    handlers = dict.fromkeys(_TERMINATING, _terminate) | {signal.SIGINT: _interrupt}
    handled = [one for one in handlers if signal.getsignal(one) is not signal.SIG_IGN]
    for one in handled:
        signal.signal(one, handlers[one])
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(CODE)
    except Exception as error:
        if (cause := _signal_behind(error)) is None:
            raise
        sys.exit(CODE if isinstance(cause, KeyboardInterrupt) else cause.code)
    finally:
        for one in handled:
            signal.signal(one, signal.SIG_DFL)
        sys.unraisablehook = hook


def _interrupt(number: int, frame: object) -> NoReturn:
    raise Interrupted


def _terminate(number: int, frame: object) -> NoReturn:
    raise Terminated(number)


def _again(hook: Any) -> Any:
    def unraisable(dropped: Any) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            number = signal.SIGINT
        elif issubclass(dropped.exc_type, Terminated):
            number = dropped.exc_value.code - 128
        else:
            hook(dropped)
            return
        while True:
            try:
                _send_later(number)
                return
            except (Interrupted, Terminated):  # on a busy machine, it arrives before the return
                continue

    return unraisable


def _send_later(number: int) -> None:
    from threading import Timer  # imported late: help and version stay fast

    later = Timer(_AGAIN_AFTER, os.kill, (os.getpid(), number))
    later.daemon = True
    later.start()


def _signal_behind(error: BaseException | None) -> KeyboardInterrupt | Terminated | None:
    """The signal that caused an error, which may have been raised in its place."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt | Terminated):
            return error
        error = error.__cause__ or error.__context__
    return None
