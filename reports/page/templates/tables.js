// Each chart's data as a table, created when opened, and as a file.
const MOST_ROWS = 500;

function csv(found) {
  const names = Object.keys(found.columns);
  const cell = (value) => {
    // With a leading sign, a spreadsheet would run the text as a formula.
    const text = value === null ? "" : typeof value === "string" ? value.replace(/^[=+\-@\t\r]/, "'$&") : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [names.map(cell).join(",")];
  for (let n = 0; n < found.length; n += 1)
    lines.push(names.map((name) => cell(found.columns[name][n])).join(","));
  return `${lines.join("\r\n")}\r\n`;
}

function chartData(key) {
  const chart = report.charts[key];
  const found = rowsOf(chart.table, chart.key);
  const names = chart.columns || Object.keys(found.columns);
  return { columns: Object.fromEntries(names.map((name) => [name, found.columns[name]])), length: found.length };
}

function dataTable(found) {
  const names = Object.keys(found.columns);
  const body = make("tbody");
  for (let n = 0; n < Math.min(found.length, MOST_ROWS); n += 1) {
    const row = make("tr");
    for (const name of names) {
      const value = found.columns[name][n];
      row.append(make("td", { text: value === null ? "n/a" : typeof value === "number" ? value.toLocaleString("en", { maximumSignificantDigits: 17 }) : String(value) }));
    }
    body.append(row);
  }
  const head = make("tr", {}, ...names.map((name) => make("th", { scope: "col", text: name })));
  const said = found.length > MOST_ROWS ? `The first ${MOST_ROWS} of ${units.count(found.length)} rows; the CSV file has all of them.` : `${units.count(found.length)} rows.`;
  return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Data" },
    make("table", { className: "data" }, make("caption", { text: said }), make("thead", {}, head), body));
}

function download(name, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function setUpData() {
  for (const details of document.querySelectorAll("details.chart-data")) {
    details.addEventListener("toggle", () => {
      const place = details.querySelector(".place");
      if (details.open && !place.firstChild) place.append(dataTable(chartData(details.dataset.chart)));
    });
    details.querySelector("button").addEventListener("click", () =>
      download(`${details.dataset.chart}.csv`, csv(chartData(details.dataset.chart))));
  }
}
