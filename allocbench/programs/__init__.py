# SPDX-License-Identifier: Apache-2.0
"""Programs as workloads: `-- python train.py` wherever a trace is taken.

arguments.py  `-- COMMAND` and its options on the command line of every command
program.py    what to run and where; its traces, newly recorded or stored
ran.py        runs it on this machine's GPU or on a null GPU
kept.py       recordings in the cache, and whether they are still valid
steps.py      which steps were seen, and whether memory still grew
"""
