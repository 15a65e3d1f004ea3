# SPDX-License-Identifier: Apache-2.0
"""The questions that a trace answers: fit, explain, tune, recommend, and what they share."""
