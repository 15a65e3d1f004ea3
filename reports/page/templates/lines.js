// Charts of lines, one for each allocator: latencies, and benchmarks across commits.
const LINES = {
  latency: { x: "seconds", y: "quantile", panels: "call", series: "allocator", byTime: true, show: (part) => units.percent(part) },
  scaling: { x: "live_from", y: "median", panels: "call", series: "allocator", byTime: false, show: (seconds) => units.seconds(seconds) },
};

function lineCharts(root) {
  const about = report.cases.find(({ id }) => id === root.dataset.case);
  const draw = () => {
    const place = root.querySelector(".place");
    if (!root.clientWidth) return;
    place.replaceChildren();
    const found = about
      ? rowsOf(root.dataset.lines, { workload: about.workload, device: about.device }).columns
      : rowsOf("history", { benchmark: root.dataset.benchmark }).columns;
    const kind = about ? LINES[root.dataset.lines] : HISTORY;
    const titles = about ? found[kind.panels] : found.workload.map((name, n) => `${name} ${found.machine[n]}`.trim());
    const figures = [...new Set(titles)].map((title) => make("div", { className: "panel" }, make("h5", { text: title })));
    place.append(make("div", { className: "panels" }, ...figures)); // all at once: their number decides how wide each is
    for (const figure of figures) {
      const rows = titles.flatMap((name, n) => (name === figure.textContent ? [n] : []));
      linePanel(figure, found, rows, kind);
    }
    const names = [...new Set(found[kind.series])];
    place.append(make("ul", { className: "legend" }, ...names.map((name) => make("li", {}, swatch(report.looks[name]), report.looks[name].label || name))));
  };
  onChange(draw);
  draw();
}

const HISTORY = { y: "value", series: "series", byTime: false, isHistory: true };

function linePanel(figure, found, rows, kind) {
  const show = kind.show || units[found.unit[rows[0]]] || units.three;
  const commits = kind.isHistory ? [...new Set(found.commit)] : [];
  const x = (n) => (kind.isHistory ? commits.indexOf(found.commit[n]) : found[kind.x][n]);
  const names = [...new Set(rows.map((n) => found[kind.series][n]))];
  const lines = names.map((name) => {
    const mine = rows.filter((n) => found[kind.series][n] === name && found[kind.y][n] !== null && (!kind.byTime || found[kind.x][n] > 0));
    mine.sort((a, b) => x(a) - x(b));
    return [mine.map(x), mine.map((n) => found[kind.y][n])];
  });
  const label = kind.isHistory ? (tick) => (commits[tick] || "").slice(0, 7) : kind.byTime ? units.seconds : short;
  const wide = kind.byTime ? { distr: 3 } : {};
  new uPlot({
    width: figure.clientWidth, height: 200, padding: [8, kind.isHistory ? 30 : 16, 0, 0], legend: { show: false }, cursor: { show: false },
    scales: { x: { time: false, ...wide }, y: kind.byTime ? { range: [0, 1] } : kind.isHistory ? { range: (u, low, high) => [0, 1.05 * high] } : {} },
    axes: [
      { ...AXIS, values: (u, all) => all.map((tick) => (tick === null || (kind.isHistory && tick % 1) ? "" : label(tick))), size: 28, space: 70 },
      { ...AXIS, values: (u, all) => all.map((tick) => show(tick)), size: 74, splits: byteSplits(show) },
    ],
    series: [{}, ...names.map((name) => ({
      label: name, stroke: report.looks[name].color, dash: report.looks[name].dash, width: 1.5, spanGaps: true,
      points: { show: lines[names.indexOf(name)][0].length < 3 },
    }))],
  }, uPlot.join(lines), figure);
}
