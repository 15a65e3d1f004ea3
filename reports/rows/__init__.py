# SPDX-License-Identifier: Apache-2.0
"""Result rows: their columns, their files, which of them may be compared."""
