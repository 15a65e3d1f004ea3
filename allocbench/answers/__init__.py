# SPDX-License-Identifier: Apache-2.0
"""The answers to questions in words, tables and JSON."""
