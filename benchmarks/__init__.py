# SPDX-License-Identifier: Apache-2.0
"""The suites that asv runs on any commit: the parameters never depend on commit or machine.

What is named Fast is for every change, the rest for a nightly run. What a commit or a machine does
not have is n/a, with the reason.
"""
