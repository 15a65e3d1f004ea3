# SPDX-License-Identifier: Apache-2.0
"""The results of `make gpu` as Markdown tables."""
