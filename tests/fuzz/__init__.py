# SPDX-License-Identifier: Apache-2.0
"""Fuzzing: hostile files, texts and sequences of calls. `make fuzz SECONDS=60` runs all of it.

`inputs` has a target for each format of files and each kind of text, and `seeds` the valid inputs
from which libFuzzer derives others. `sequences` draws calls of allocators at random. `regressions`
keeps inputs that once failed; `tests/test_fuzz_inputs.py` reads them in every test run.
"""
