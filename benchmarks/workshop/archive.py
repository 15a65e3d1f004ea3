# SPDX-License-Identifier: Apache-2.0
"""One file with the data of the league, to be cited and kept: `make archive`.

    PYTHONPATH=. python -m benchmarks.workshop.archive FOLDER

writes `allocbench-league-VERSION.tar` and prints its SHA-256. It has every workload of the set as
Parquet and as lifetimes, the committed results, and `manifest.json` with the SHA-256, the licence
and the origin of each file. The same packages give the same bytes.
"""

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from allocbench.questions.league import VERSION, frozen, traces
from allocbench.workloads.block_lifetimes import write_blocks
from allocbench.workloads.parquet import write_parquet
from benchmarks.workshop.originals.environments import ROOT

RESULTS = ("league", "originals", "instances", "hidden_league", "papers")
LICENCE = "Apache-2.0"  # of all parts: other people's instances are not among them


def parts() -> Iterator[tuple[str, str, bytes]]:
    """Name, origin and content of each file."""
    for part, name, trace in traces(frozen()):
        events, blocks = io.BytesIO(), io.BytesIO()
        write_parquet(trace, events)
        write_blocks(trace, blocks)
        yield f"{part}/{name}.parquet", f"allocbench workload {name}", events.getvalue()
        yield f"{part}/{name}.lifetimes.csv", f"allocbench workload {name}", blocks.getvalue()
    for name in RESULTS:
        path = Path("benchmarks") / "results" / f"{name}.json"
        yield f"results/{name}.json", path.as_posix(), (ROOT / path).read_bytes()
    for name in ("CITATION.cff", "LICENSE"):
        yield name, name, (ROOT / name).read_bytes()


def main() -> None:
    """Write the archive."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    found = list(parts())
    manifest = {
        "league": VERSION,
        "allocbench": version("allocbench"),
        "set": frozen(),
        "files": {
            name: {
                "sha256": hashlib.sha256(content).hexdigest(),
                "licence": LICENCE,
                "from": origin,
            }
            for name, origin, content in found
        },
    }
    text = json.dumps(manifest, indent=1).encode() + b"\n"
    path = folder / f"allocbench-league-{VERSION}.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in [("manifest.json", text), *((name, data) for name, _, data in found)]:
            entry = tarfile.TarInfo(f"allocbench-league-{VERSION}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    print(hashlib.sha256(path.read_bytes()).hexdigest(), path)


if __name__ == "__main__":
    main()
