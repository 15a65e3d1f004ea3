# SPDX-License-Identifier: Apache-2.0
"""Charts of result rows and of the details of a run."""
