# SPDX-License-Identifier: Apache-2.0
"""The suites that asv runs on any commit; parameters do not depend on the commit or machine.

Suites named Fast run for every change, the others nightly. What a commit or a machine does not have
is n/a, with the reason.
"""
