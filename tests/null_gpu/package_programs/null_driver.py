"""Loads the driver of the null GPU, and makes the installed packages importable."""

import ctypes
import json
import os
import site

told = json.loads(os.environ["NULL_DRIVER"])
core = ctypes.CDLL(told["core"])
core.null_configure(told["settings"].encode())
ctypes.CDLL(told["driver"], ctypes.RTLD_GLOBAL)
site.addsitedir(told["packages"])


def outcome(function):
    """The result of a call, or the name of its error and the beginning of its text."""
    try:
        return function()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"
