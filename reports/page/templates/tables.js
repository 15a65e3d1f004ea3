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

// The rows of a table that belong to a chart; without a case, all of them.
function chartData({ table, case: id }) {
  const about = report.cases.find((one) => one.id === id);
  return rowsOf(table, about ? { workload: about.workload, device: about.device } : {});
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
  const said = found.length > MOST_ROWS ? `The first ${MOST_ROWS} of ${units.count(found.length)} rows; the CSV file has all of them.` : `${units.count(found.length)} rows.`;
  return make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Data" },
    make("table", { className: "data" }, make("caption", { text: said }), tableHead(names), body));
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
      if (details.open && !place.firstChild) place.append(dataTable(chartData(details.dataset)));
    });
    details.querySelector("button").addEventListener("click", () =>
      download(`${details.dataset.table}.csv`, csv(chartData(details.dataset))));
  }
}
// Sort a table by a column: numbers ascending first, missing numbers always last.
function setUpSorting() {
  for (const button of document.querySelectorAll("table.sortable thead button")) {
    button.addEventListener("click", () => {
      const header = button.closest("th");
      const ascending = header.getAttribute("aria-sort") !== "ascending";
      for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const direction = ascending ? 1 : -1;
      const key = (row) => {
        const cell = row.children[header.cellIndex];
        if (cell.tagName === "TH") return cell.querySelector(".name").textContent;
        return "value" in cell.dataset ? Number(cell.dataset.value) : null;
      };
      const body = header.closest("table").tBodies[0];
      const rows = [...body.rows].sort((left, right) => {
        const a = key(left), b = key(right);
        if (a === null || b === null) return (a === null) - (b === null);
        return direction * (typeof a === "string" ? a.localeCompare(b) : a - b);
      });
      body.append(...rows);
    });
  }
}

