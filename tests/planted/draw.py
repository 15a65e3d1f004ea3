# SPDX-License-Identifier: Apache-2.0
"""Draw the places of bugs at random: `python -m tests.planted.draw --seed 7 --number 40`.

Every line of code of the product is as likely as any other. A bug goes into the drawn line, or into
the nearest one where a mistake would be plausible.
"""

import argparse
import random
import re
from collections.abc import Iterator

from tests.source_copy import ROOT

_FOLDERS = ("allocators", "allocbench", "null_gpu", "reports", "workloads")
_NO_CODE = re.compile(r"\s*(#|//|import |from |\"\"\"|@|[\])}]*[,;]?$|else:?$|$)")


def places() -> Iterator[tuple[str, int, str]]:
    """The file, the number of the line from 1, and the line."""
    for folder in _FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):  # does not follow links to folders
            if path.suffix in (".py", ".cpp", ".hpp"):
                for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                    if not _NO_CODE.match(line):
                        yield str(path.relative_to(ROOT)), number, line


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.planted.draw", description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--number", type=int, default=40)
    given = parser.parse_args()
    for file, number, line in sorted(random.Random(given.seed).sample([*places()], given.number)):
        print(f"{file}:{number}: {line.strip()}")


if __name__ == "__main__":
    main()
