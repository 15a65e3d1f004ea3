# SPDX-License-Identifier: Apache-2.0
"""The published site, made of the committed results and opened in Chromium."""

import json
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from docs.generate.browser import chromium
from tests.browser import needs_chromium

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "tests" / "data" / "asv_site"
METRICS = ("peak_reserved", "overhead", "external_fragmentation")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        pass


def localise(html: Path) -> None:
    """Let a site load the scripts of tests/data/asv_site, which asv would load from the network."""
    for script in SCRIPTS.glob("*.js"):
        shutil.copy(script, html)
    (html / "bootstrap.min.css").touch()
    page = html / "index.html"
    away = r'="https://[^"]+/([^"/]+[.](?:js|css))" integrity="[^"]*"'
    text, replaced = re.subn(away, r'="\1"', page.read_text())
    assert replaced == len(list(SCRIPTS.glob("*.js"))) + 1
    page.write_text(text)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site that `asv publish` makes from the committed results."""
    needs_chromium()
    pytest.importorskip("asv", reason="asv is not installed")
    if not (ROOT / ".git").exists():
        pytest.skip("asv reads commits, and this is no clone")
    folder = tmp_path_factory.mktemp("site")
    text = re.sub(r"^\s*//.*$", "", (ROOT / "asv.conf.json").read_text(), flags=re.MULTILINE)
    settings = json.loads(text)
    settings |= {
        "repo": str(ROOT),
        "branches": ["HEAD"],
        "html_dir": str(folder / "html"),
        "results_dir": str(ROOT / "benchmarks" / "results" / "asv"),
        "benchmark_dir": str(ROOT / settings["benchmark_dir"]),
    }
    (folder / "asv.conf.json").write_text(json.dumps(settings))
    line = [sys.executable, "-m", "asv", "--config", str(folder / "asv.conf.json"), "publish"]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    localise(folder / "html")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder / "html")))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_has_its_graph_for_allocators_and_workloads(
    site: str, driver: Any, metric: str
) -> None:
    driver.get("about:blank")
    driver.get_log("browser")
    driver.get(f"{site}/#memory.FastMemory.track_{metric}")
    drawn = driver.execute_async_script(
        """
        const done = arguments[0], began = Date.now();
        (function look() {
          const plot = document.querySelector('#main-graph canvas');
          const labels = [...document.querySelectorAll('#main-graph .legendLabel')];
          const ready = plot && plot.width && labels.length;
          if (!ready && Date.now() - began < 300000) return setTimeout(look, 100);
          const buttons = [...document.querySelectorAll('#graphdisplay-navigation a')];
          done({
            labels: labels.map(label => label.textContent),
            text: document.querySelector('#graphdisplay-navigation').textContent,
            lit: plot ? [...plot.getContext('2d').getImageData(0, 0, plot.width, plot.height).data]
              .filter((value, n) => n % 4 == 3 && value).length : 0,
          });
        })();
        """
    )
    said = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert [entry["message"] for entry in said if "favicon" not in entry["message"]] == []
    assert drawn["lit"] > 1000
    for word in ("allocator", "bfc", "caching", "workload", "gpt2-train"):
        assert word in drawn["text"], drawn
