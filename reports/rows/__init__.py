# SPDX-License-Identifier: Apache-2.0
"""Result rows: their columns, their files, which of them may be compared."""

from allocbench.base.errors import UserError


class ResultError(UserError):
    """Rows that break the schema, or a results file that cannot be read."""
