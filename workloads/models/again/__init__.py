# SPDX-License-Identifier: Apache-2.0
"""The training programs run again on other data: what a plan of an earlier run has to serve."""
