// The address map: the memory held at an instant, line by line, with its blocks.
const OPERATORS = ["#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#56b4e9", "#ca9161", "#8c6bb1", "#b5a300", "#7f8c2f"];
const OTHER = "#8b949f";

class AddressMap {
  constructor(root, about) {
    this.root = root;
    this.about = about;
    this.canvas = root.querySelector("canvas");
    this.slider = root.querySelector("input[type=range]");
    this.allocator = root.querySelector("select[name=allocator]");
    this.color = root.querySelector("select[name=color]");
    this.selected = null;
    const held = new Set(rowsOf("blocks", { workload: about.workload, device: about.device }).columns.allocator);
    for (const one of about.allocators)
      if (held.has(one.name)) this.allocator.append(make("option", { value: one.name, text: one.label }));
    if (held.has(about.reference)) this.allocator.value = about.reference;
    this.allocator.addEventListener("change", () => this.load());
    this.color.addEventListener("change", () => this.draw());
    this.slider.addEventListener("input", () => this.show());
    root.querySelector("button[name=peak]").addEventListener("click", () => this.goTo(this.peak));
    root.querySelector("button[name=failure]").addEventListener("click", () => this.goTo(this.failure));
    const data = root.querySelector("details.data-now");
    data.addEventListener("toggle", () => this.list());
    data.querySelector("button").addEventListener("click", () =>
      download(`${about.id}-map.csv`, csv(this.now())));
    this.canvas.addEventListener("mousemove", (event) => this.point(event));
    this.canvas.addEventListener("mouseleave", () => this.select(null));
    this.canvas.addEventListener("keydown", (event) => this.press(event));
    onChange(() => this.draw());
    this.load();
  }

  load() {
    const before = this.instants ? this.event : null;
    const key = { workload: this.about.workload, device: this.about.device, allocator: this.allocator.value };
    this.one = this.about.allocators.find((one) => one.name === key.allocator);
    this.instants = rowsOf("instants", key).columns.event;
    this.blocks = rowsOf("blocks", key).columns;
    this.ranges = rowsOf("ranges", key).columns;
    this.failure = (rowsOf("failures", key).columns.event || [])[0] ?? null; // its event
    this.omitted = rowsOf("omitted", key).columns;
    const byAddress = ({ address }) => address.map((_, n) => n).sort((a, b) => address[a] - address[b]);
    this.byAddress = byAddress(this.ranges);
    this.blocksByAddress = byAddress(this.blocks);
    this.operators = commonest(this.blocks);
    this.slider.max = String(this.instants.length - 1);
    this.root.querySelector("button[name=failure]").hidden = this.failure === null;
    const held = this.instants.map((event) => this.layOut(event).bytes);
    this.most = largest([1, ...held]);
    this.peak = this.instants[held.indexOf(largest(held))];
    this.goTo(before ?? this.failure ?? this.peak);
  }

  goTo(event) {
    this.slider.value = String(Math.max(0, lastAtMost(this.instants, event)));
    this.show();
  }

  // The memory held after an event: one area for each segment and each run of mapped pages.
  layOut(event) {
    const areas = [];
    let bytes = 0;
    for (const n of this.byAddress) {
      if (this.ranges.first[n] > event || this.ranges.last[n] <= event) continue;
      const [address, size] = [this.ranges.address[n], this.ranges.size[n]];
      const before = areas[areas.length - 1];
      if (before && before.mapped && this.ranges.mapped[n] && before.address + before.size === address) before.size += size;
      else areas.push({ address, size, start: bytes, mapped: this.ranges.mapped[n], first: this.ranges.first[n] });
      bytes += size;
    }
    return { areas, bytes };
  }

  show() {
    this.event = this.instants[Number(this.slider.value)];
    this.selected = null;
    const alive = [];
    let allocated = 0;
    for (const n of this.blocksByAddress)
      if (this.blocks.first[n] <= this.event && this.blocks.last[n] > this.event) {
        alive.push(n);
        allocated += this.blocks.size[n];
      }
    this.alive = alive;
    this.layout = this.layOut(this.event);
    const words = `Event ${units.count(this.event)}: ${units.bytes(this.layout.bytes)} held in ${units.count(this.layout.areas.length)} segments; ${units.bytes(allocated)} in ${units.count(alive.length)} blocks.`;
    this.root.querySelector("output").textContent = words;
    this.slider.setAttribute("aria-valuetext", words);
    this.canvas.setAttribute("aria-label", `Address map of ${this.one.label}. ${words} Arrow keys go from block to block.`);
    const omitted = this.omitted.blocks && this.omitted.blocks.length
      ? ` ${units.count(this.omitted.blocks[0])} blocks of up to ${units.bytes(this.omitted.largest[0])} are too small to be drawn; the map shows their places as free.` : "";
    this.root.querySelector(".scale").textContent = omitted;
    this.draw();
    this.tell();
    this.list();
  }

  // The blocks at the instant, as columns.
  now() {
    const names = ["address", "size", "requested", "first", "last", "label", "pins"];
    const columns = Object.fromEntries(names.map((name) => [name, this.alive.map((n) => this.blocks[name][n])]));
    return { columns, length: this.alive.length };
  }

  list() {
    const data = this.root.querySelector("details.data-now");
    if (data.open) data.querySelector(".place").replaceChildren(dataTable(this.now()));
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    this.rows = width < 600 ? 32 : 22;
    this.row = 16;
    this.perRow = this.most / this.rows;
    const context = sized(this.canvas, width, this.rows * this.row);
    context.fillStyle = ink("paper");
    context.fillRect(0, 0, width, this.rows * this.row);
    this.spots = [];
    for (const area of this.layout.areas) this.fill(context, area.start, area.size, ink("free"));
    const places = this.layout.areas.map((area) => area.address);
    for (const n of this.alive) {
      const at = lastAtMost(places, this.blocks.address[n]);
      if (at < 0) continue;
      const start = this.layout.areas[at].start + this.blocks.address[n] - places[at];
      this.spots.push({ start, size: this.blocks.size[n], n });
      this.fill(context, start, this.blocks.size[n], this.paint(n));
      const waste = this.blocks.size[n] - this.blocks.requested[n];
      if (this.color.value === "state" && waste > 0) this.fill(context, start + this.blocks.requested[n], waste, ink("waste"));
    }
    context.fillStyle = ink("ink");
    for (const area of this.layout.areas) {
      const [x, y] = this.spot(area.start);
      context.fillRect(Math.floor(x), y, 1, this.row - 2);
    }
    for (const { start, n } of this.spots)
      if (this.blocks.pins[n] && this.atFailure()) this.outline(context, start, this.blocks.size[n], ink("failed"));
    if (this.selected !== null) {
      const spot = this.spots.find(({ n }) => n === this.selected);
      if (spot) this.outline(context, spot.start, spot.size, ink("ink"));
    }
    this.legend();
  }

  atFailure() {
    return this.failure === this.event;
  }

  paint(n) {
    if (this.blocks.pins[n] && this.atFailure()) return ink("failed");
    if (this.color.value === "state") return this.one.color;
    if (this.color.value === "age") return shade(Math.log1p(this.event - this.blocks.first[n]) / Math.log1p(this.about.events));
    const at = this.operators.indexOf(this.blocks.label[n]);
    return at < 0 ? OTHER : OPERATORS[at];
  }

  spot(byte) {
    const row = Math.min(this.rows - 1, Math.floor(byte / this.perRow));
    return [((byte - row * this.perRow) / this.perRow) * this.canvas.clientWidth, row * this.row];
  }

  // Calls `each` with the rectangles that a range of bytes covers, one per line.
  pieces(start, size, each) {
    const width = this.canvas.clientWidth;
    for (let at = start; at < start + size;) {
      const row = Math.floor(at / this.perRow + 1e-9);
      const end = Math.min(start + size, (row + 1) * this.perRow);
      const x = ((at - row * this.perRow) / this.perRow) * width;
      each(x, row * this.row, ((end - at) / this.perRow) * width, this.row - 2);
      if (end <= at) break;
      at = end;
    }
  }

  fill(context, start, size, color) {
    context.fillStyle = color;
    this.pieces(start, size, (x, y, width, height) => context.fillRect(x, y, width > 2 ? width - 0.5 : width, height));
  }

  outline(context, start, size, color) {
    context.strokeStyle = color;
    context.lineWidth = 2;
    this.pieces(start, size, (x, y, width, height) => context.strokeRect(x, y, Math.max(2, width), height));
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / this.row);
    const byte = (row + (event.clientX - box.left) / box.width) * this.perRow;
    const at = lastAtMost(this.spots.map(({ start }) => start), byte);
    const hit = at >= 0 && byte < this.spots[at].start + this.spots[at].size ? this.spots[at].n : null;
    this.select(hit, byte);
  }

  select(n, byte = null) {
    const changed = n !== this.selected;
    this.selected = n;
    if (changed) this.draw();
    this.tell(byte);
  }

  press(event) {
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 20, ArrowUp: -20 };
    if (event.key === "Escape") return this.select(null);
    if (!(event.key in steps) || !this.spots.length) return undefined;
    event.preventDefault();
    const at = this.spots.findIndex(({ n }) => n === this.selected);
    const next = Math.min(this.spots.length - 1, Math.max(0, at + steps[event.key]));
    return this.select(this.spots[next].n);
  }

  tell(byte = null) {
    const place = this.root.querySelector(".block");
    const n = this.selected;
    if (n === null) {
      const inside = byte !== null && byte < this.layout.bytes;
      place.textContent = inside ? "Free." : "Point at a block, or go from block to block with the arrow keys.";
      return;
    }
    const { size, requested, first, last, label, address } = this.blocks;
    const end = last[n] >= this.about.events ? "alive to the end" : `freed at event ${units.count(last[n])}`;
    const pins = this.blocks.pins[n] && this.atFailure() ? " It pins the failed request's place." : "";
    place.textContent = `${units.bytes(size[n])} at 0x${address[n].toString(16)}, ${units.bytes(requested[n])} of it requested by ${label[n] || "an unnamed operator"}; ${units.count(this.event - first[n])} events old (event ${units.count(first[n])}), ${end}.${pins}`;
  }

  legend() {
    const entries = { state: [[this.one.color, "allocated"], [ink("waste"), "lost to rounding"]], age: [[shade(0), "new"], [shade(0.5), ""], [shade(1), "old"]] }[this.color.value]
      || [...this.operators.map((name, n) => [OPERATORS[n], name || "unnamed"]), [OTHER, "other"]];
    const every = [...entries, [ink("free"), "free"], ...(this.atFailure() ? [[ink("failed"), "pins the failed request"]] : [])];
    fillLegend(this.root, every);
    this.root.querySelector(".line").textContent = `One line is ${units.bytes(Math.round(this.perRow))}; a dark stroke marks the start of a segment.`;
  }
}

// The labels that request the most bytes, at most one per color.
function commonest({ label, requested }) {
  const bytes = new Map();
  label.forEach((name, n) => bytes.set(name, (bytes.get(name) || 0) + requested[n]));
  return [...bytes].sort((a, b) => b[1] - a[1]).slice(0, OPERATORS.length).map(([name]) => name);
}
