# SPDX-License-Identifier: Apache-2.0
"""`allocbench` and `python -m allocbench`."""

from allocbench import interrupts


def main() -> None:
    """Run the command line."""
    with interrupts.quiet():
        from allocbench.cli import app  # slow enough for an interrupt to arrive meanwhile

        app(prog_name="allocbench")


if __name__ == "__main__":
    main()
