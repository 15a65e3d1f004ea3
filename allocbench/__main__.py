# SPDX-License-Identifier: Apache-2.0
"""`allocbench` and `python -m allocbench`."""

from allocbench.cli import app


def main() -> None:
    """Run the command line."""
    app(prog_name="allocbench")


if __name__ == "__main__":
    main()
