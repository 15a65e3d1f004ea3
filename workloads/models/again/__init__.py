# SPDX-License-Identifier: Apache-2.0
"""The training programs run on other data, to test plans made from an earlier run."""
