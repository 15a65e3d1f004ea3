# SPDX-License-Identifier: Apache-2.0
"""The documentation, and what generates parts of it."""
