// The tables of the page: unpacked once, then read by column or by row.
const report = { ready: null, tables: {}, cases: [], looks: {} };

async function unpack() {
  const packed = document.getElementById("data").textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const content = JSON.parse(await new Response(stream).text());
  for (const [name, columns] of Object.entries(content.tables)) report.tables[name] = table(columns);
  if (report.tables.program) {
    const { first, last } = report.tables.program.columns;
    first.forEach((event, n) => { last[n] += event; });
  }
  if (report.tables.allocs) join(report.tables.blocks.columns, report.tables.allocs.columns);
  report.cases = content.cases;
  report.looks = content.looks;
  setUpEdits(content.edits);
}

// Adds the columns of its alloc to each block; they are the same for every allocator.
function join(blocks, allocs) {
  const name = (columns, n) => `${columns.block[n]} ${columns.workload[n]}`;
  const places = new Map(allocs.block.map((_, n) => [name(allocs, n), n]));
  const found = blocks.block.map((_, n) => places.get(name(blocks, n)));
  for (const column of ["requested", "first", "last", "label"])
    blocks[column] = found.map((n) => allocs[column][n]);
  blocks.size = blocks.rounding.map((bytes, n) => bytes + blocks.requested[n]);
}

function table(columns) {
  const read = {};
  for (const [name, column] of Object.entries(columns)) read[name] = values(column);
  const first = Object.values(read)[0];
  return { columns: read, length: first ? first.length : 0 };
}

function values(column) {
  if (column.flag) return column.whole.map(Boolean);
  if (column.text) return column.codes.map((code) => (code < 0 ? null : column.text[code]));
  if (column.number) return column.number;
  if (column.whole) return column.whole.map((number) => number * column.unit);
  let sum = 0;
  return column.differences.map((difference) => (sum += difference * column.unit));
}

// The rows of a table whose columns equal those of `key`; a missing column counts as equal.
function rowsOf(name, key) {
  const found = report.tables[name];
  if (!found) return { columns: {}, length: 0 };
  const wanted = Object.entries(key).filter(([column]) => column in found.columns);
  const rows = [];
  for (let n = 0; n < found.length; n += 1)
    if (wanted.every(([column, value]) => found.columns[column][n] === value)) rows.push(n);
  const columns = {};
  for (const [column, all] of Object.entries(found.columns)) columns[column] = rows.map((n) => all[n]);
  return { columns, length: rows.length };
}

// The index of the last of ascending numbers that is at most `limit`, -1 for none.
function lastAtMost(numbers, limit) {
  let low = 0, high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

const units = {
  // Three significant digits; ties go to the even digit, as in Python.
  three(number) {
    const unit = 10 ** Math.max(-9, Math.floor(Math.log10(Math.abs(number) || 1)) - 2);
    const whole = Math.floor(number / unit), part = number / unit - whole;
    const rounded = part === 0.5 ? Number(((whole + (whole % 2)) * unit).toPrecision(3)) : Number(number.toPrecision(3));
    if (rounded >= 100) return Math.round(rounded).toLocaleString("en");
    return rounded.toFixed(rounded >= 10 ? 1 : 2);
  },
  bytes(number) {
    const names = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let power = 0;
    while (power < 5 && Number((number / 1024 ** power).toPrecision(3)) >= 1000) power += 1;
    return power ? `${units.three(number / 1024 ** power)} ${names[power]}` : `${number} B`;
  },
  seconds(number) {
    if (!number) return "0 s";
    for (const [size, name] of [[1e-9, "ns"], [1e-6, "us"], [1e-3, "ms"]])
      if (Number((number / size).toPrecision(3)) < 1000) return `${units.three(number / size)} ${name}`;
    return `${units.three(number)} s`;
  },
  percent: (number) => `${(number * 100).toFixed(1)}%`,
  count: (number) => number.toLocaleString("en"),
};

function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") element.textContent = value;
    else if (name in element && !name.startsWith("aria")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Draws again when the width or the colors of the page change.
function onChange(draw) {
  for (const name of ["resize", "look"]) addEventListener(name, draw);
}

// The heading of a table.
const tableHead = (names) => make("thead", {}, make("tr", {}, ...names.map((text) => make("th", { scope: "col", text }))));

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
