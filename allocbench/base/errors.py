# SPDX-License-Identifier: Apache-2.0
"""The base of all errors that a user sees as one line."""


class UserError(ValueError):
    """Invalid input, or something that this machine lacks. The message is one line."""
