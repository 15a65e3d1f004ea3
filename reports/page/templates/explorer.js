// Memory over time: one chart to compare the allocators, one for each of them with its free blocks
// beneath. All share the cursor and the zoom.
const METRICS = {
  reserved: { title: "reserved bytes", table: "memory", show: units.bytes },
  allocated: { title: "allocated bytes", table: "memory", show: units.bytes },
  stranded: { title: "reserved but not allocated", table: "memory", show: units.bytes },
  internal_fragmentation: { title: "internal fragmentation", table: "moments", show: units.percent },
  external_fragmentation: { title: "external fragmentation", table: "moments", show: units.percent },
  device_calls: { title: "device calls so far", table: "moments", show: units.count },
  device_seconds: { title: "device time so far", table: "moments", show: units.seconds },
};

const AXIS = { stroke: () => ink("faint"), grid: { stroke: () => ink("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };

class Explorer {
  constructor(root, about) {
    this.root = root;
    this.about = about;
    this.key = { workload: about.workload, device: about.device };
    this.shown = new Set(about.allocators.filter((one) => one.first).map((one) => one.name));
    this.runs = new Map();
    this.charts = [];
    this.cursor = null;
    this.range = [0, Math.max(1, about.events - 1)];
    const marks = rowsOf("marks", this.key).columns;
    this.marks = { event: marks.event || [], label: marks.label || [] };
    for (const one of about.allocators) this.runs.set(one.name, this.run(one));
    this.metric = root.querySelector("select[name=metric]");
    const estimated = "estimated" in this.metric.dataset ? " (estimate)" : "";
    for (const [value, { title }] of Object.entries(METRICS))
      this.metric.append(make("option", { value, text: title + (value === "device_seconds" ? estimated : "") }));
    this.metric.addEventListener("change", () => this.draw());
    root.querySelector("button[name=reset]").addEventListener("click", () => this.zoom(0, about.events - 1));
    this.chips();
    this.draw();
    let width = innerWidth;
    addEventListener("resize", () => {
      if (innerWidth === width) return; // phones resize in height when they scroll
      width = innerWidth;
      this.draw();
    });
    addEventListener("look", () => this.draw());
  }

  run(one) {
    const key = { ...this.key, allocator: one.name };
    const memory = rowsOf("memory", key).columns;
    if (memory.reserved) memory.stranded = memory.reserved.map((bytes, n) => bytes - memory.allocated[n]);
    const moments = rowsOf("moments", key).columns;
    const free = rowsOf("free_blocks", key).columns;
    return { one, memory, moments, free };
  }

  // The value of a metric after an event, or null.
  value(name, metric, event) {
    const found = this.runs.get(name)[METRICS[metric].table];
    const at = found.event ? lastAtMost(found.event, event) : -1;
    return at < 0 ? null : found[metric][at];
  }

  chips() {
    const place = this.root.querySelector(".chips");
    for (const one of this.about.allocators) {
      const chip = make("button", { type: "button", className: "chip", "aria-pressed": String(this.shown.has(one.name)) },
        swatch(one), make("span", { className: "name", text: one.label }), make("output", {}));
      chip.addEventListener("click", () => {
        if (this.shown.has(one.name)) this.shown.delete(one.name);
        else this.shown.add(one.name);
        chip.setAttribute("aria-pressed", String(this.shown.has(one.name)));
        this.draw();
      });
      one.chip = chip;
      place.append(chip);
    }
    const every = (wanted) => () => {
      for (const one of this.about.allocators) {
        this.shown[wanted ? "add" : "delete"](one.name);
        one.chip.setAttribute("aria-pressed", String(wanted));
      }
      this.draw();
    };
    for (const [text, wanted] of [["all", true], ["none", false]]) {
      const button = make("button", { type: "button", className: "plain", text });
      button.addEventListener("click", every(wanted));
      place.append(button);
    }
  }

  draw() {
    for (const chart of this.charts) chart.destroy();
    this.charts = [];
    const shown = this.about.allocators.filter((one) => this.shown.has(one.name));
    this.compare(shown);
    const place = this.root.querySelector(".panels");
    place.replaceChildren();
    const top = 1.04 * Math.max(this.about.max_load || 0, ...shown.map((one) => largest(this.runs.get(one.name).memory.reserved)));
    const figures = shown.map((one) => make("div", { className: "panel" }, this.heading(one)));
    place.append(...figures); // all of them first: their number decides how wide each is
    shown.forEach((one, n) => this.panel(figures[n], one, top));
    this.root.querySelector(".nothing").hidden = shown.length > 0;
    this.tell();
  }

  compare(shown) {
    const metric = METRICS[this.metric.value];
    const place = this.root.querySelector(".compare");
    place.replaceChildren();
    if (!shown.length) return;
    const lines = shown.map((one) => {
      const found = this.runs.get(one.name)[metric.table];
      return [found.event || [], found[this.metric.value] || []];
    });
    const series = shown.map((one) => ({
      label: one.label, stroke: one.color, width: 1.5, dash: one.dash, spanGaps: true,
      points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }),
    }));
    const bound = ["reserved", "allocated"].includes(this.metric.value);
    this.plot(place, `${metric.title} of ${shown.map((one) => one.label).join(", ")}`, uPlot.join(lines), series, {
      height: 260, show: metric.show, bound, top: null,
    });
  }

  heading(one) {
    const peak = units.bytes(largest(this.runs.get(one.name).memory.reserved));
    return make("h5", {}, swatch(one), make("span", { text: one.label }), make("span", { className: "quiet", text: `peak ${peak}` }));
  }

  panel(figure, one, top) {
    const { memory, free } = this.runs.get(one.name);
    const series = [
      { label: "reserved", stroke: one.color, fill: `${one.color}38`, width: 1.2 },
      { label: "allocated", stroke: `${one.color}90`, fill: `${one.color}70`, width: 0.5 },
      { label: "requested", stroke: ink("ink"), width: 1 },
    ].map((line) => ({ ...line, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) }));
    const data = [memory.event, memory.reserved, memory.allocated, memory.requested];
    const chart = this.plot(figure, `requested, allocated and reserved bytes of ${one.label}`, data, series, {
      height: 170, show: units.bytes, bound: true, top,
    });
    if (free.event && free.event.length) freePicture(figure, chart, one, free, this.classes());
    else figure.append(make("p", { className: "tip quiet", text: "It keeps no free blocks." }));
  }

  // The lowest and the highest size class over all allocators: pictures of free blocks share them.
  classes() {
    let low = Infinity, high = -Infinity;
    for (const { free } of this.runs.values())
      for (const one of free.size_class || []) { low = Math.min(low, one); high = Math.max(high, one); }
    return [low, high];
  }

  plot(place, words, data, series, { height, show, bound, top }) {
    const holder = make("div", { className: "plot", tabIndex: 0, role: "application", "aria-label": `${words}. Arrow keys move the cursor, plus and minus zoom, 0 shows all.` });
    place.append(holder);
    const largestShown = top || 1.04 * Math.max(bound ? this.about.max_load || 0 : 0, ...data.slice(1).map(largest)) || 1;
    const chart = new uPlot({
      width: holder.clientWidth, height, padding: [18, 18, 0, 0], legend: { show: false },
      cursor: { y: false, drag: { x: true, y: false } },
      scales: { x: { time: false, range: (u, low, high) => [low, high] }, y: { range: [0, largestShown] } },
      axes: [
        { ...AXIS, values: (u, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? short(tick) : "")), size: 28 },
        { ...AXIS, values: (u, ticks) => ticks.map((tick) => show(tick)), size: 74, splits: byteSplits(show) },
      ],
      series: [{ label: "event" }, ...series],
      hooks: {
        drawClear: [(u) => this.drawMarks(u)],
        draw: [(u) => bound && this.about.max_load && dotted(u, this.about.max_load)],
        setCursor: [(u) => this.follow(u)],
        setSelect: [(u) => u.select.width > 2 && this.zoom(u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x"))],
      },
    }, data, holder);
    chart.setScale("x", { min: this.range[0], max: this.range[1] });
    holder.addEventListener("keydown", (event) => this.press(event));
    holder.addEventListener("dblclick", () => this.zoom(0, this.about.events - 1));
    this.charts.push(chart);
    return chart;
  }

  drawMarks(u) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.strokeStyle = ink("line");
    ctx.fillStyle = ink("faint");
    ctx.font = `${10 * devicePixelRatio}px system-ui, sans-serif`;
    ctx.lineWidth = devicePixelRatio;
    const seen = [];
    let steps = 0;
    this.marks.event.forEach((event, n) => {
      const step = this.marks.label[n] === "step";
      steps += step ? 1 : 0;
      if (event < this.range[0] || event > this.range[1]) return;
      const x = Math.round(u.valToPos(event, "x", true));
      ctx.setLineDash(step ? [] : [2 * devicePixelRatio, 3 * devicePixelRatio]);
      line(ctx, x, bbox.top, x, bbox.top + bbox.height);
      seen.push({ x, step, words: step ? `step ${steps}` : this.marks.label[n].slice(0, 18) });
    });
    // Steps get labels before phases; a mark without enough room gets none.
    const taken = [];
    const room = 8 * devicePixelRatio;
    for (const { x, words } of [...seen.filter(({ step }) => step), ...seen.filter(({ step }) => !step)]) {
      const end = x + ctx.measureText(words).width;
      if (end > bbox.left + bbox.width + room || taken.some(([a, b]) => x < b + room && end > a - room)) continue;
      taken.push([x, end]);
      ctx.fillText(words, x, bbox.top - 5 * devicePixelRatio);
    }
    ctx.restore();
  }

  follow(u) {
    if (this.following || u.cursor.left === undefined) return;
    this.moveTo(u.cursor.left < 0 ? null : u.posToVal(u.cursor.left, "x"), u);
  }

  moveTo(event, from = null) {
    this.following = true;
    this.cursor = event === null ? null : Math.round(Math.min(Math.max(event, 0), this.about.events - 1));
    for (const chart of this.charts)
      if (chart !== from)
        chart.setCursor(event === null ? { left: -10, top: -10 } : { left: chart.valToPos(this.cursor, "x"), top: 10 }, false);
    this.following = false;
    this.tell();
  }

  // The text next to each name: the metric at the cursor, or at the end.
  tell() {
    const at = this.cursor === null ? this.about.events - 1 : this.cursor;
    const metric = this.metric.value;
    for (const one of this.about.allocators) {
      const value = this.value(one.name, metric, at);
      one.chip.querySelector("output").textContent = value === null ? "n/a" : METRICS[metric].show(value);
    }
    const mark = lastAtMost(this.marks.event, at);
    const steps = this.marks.label.slice(0, mark + 1).filter((label) => label === "step").length;
    const where = mark < 0 ? "" : this.marks.label[mark] === "step" ? `, step ${steps}` : `, after ${this.marks.label[mark]}${steps ? ` of step ${steps}` : ""}`;
    this.root.querySelector(".readout").textContent =
      `${this.cursor === null ? "At the end, event" : "Event"} ${units.count(at)}${where}: ${METRICS[metric].title}, shown next to each name.`;
    dispatchEvent(new CustomEvent("cursor", { detail: { about: this.about, event: this.cursor } }));
  }

  zoom(low, high) {
    const least = Math.min(8, this.about.events - 1);
    if (high - low < least) high = low + least;
    const end = Math.max(1, this.about.events - 1);
    const at = this.cursor;
    this.range = [Math.max(0, low), Math.min(end, high)];
    for (const chart of this.charts) {
      chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
      chart.setScale("x", { min: this.range[0], max: this.range[1] });
    }
    queueMicrotask(() => this.moveTo(at)); // once the charts have their new scale: at the same event
  }

  press(event) {
    const [low, high] = this.range;
    const at = this.cursor === null ? (low + high) / 2 : this.cursor;
    act(event, this, at, high, { 0: () => this.zoom(0, this.about.events - 1), Escape: () => this.moveTo(null) });
  }
}

function largest(numbers) {
  let most = 0;
  for (const number of numbers || []) if (number > most) most = number;
  return most;
}

function short(number) {
  if (number >= 1e6) return `${Number((number / 1e6).toPrecision(4))}M`;
  return number >= 1e3 ? `${Number((number / 1e3).toPrecision(4))}k` : String(number);
}

// Ticks of bytes are binary multiples; others are those of uPlot.
function byteSplits(show) {
  if (show !== units.bytes) return undefined;
  return (u, axis, low, high) => {
    let step = 1;
    while (high / step > 5) step *= 2;
    const found = [];
    for (let at = 0; at <= high; at += step) found.push(at);
    return found;
  };
}

function dotted(u, value) {
  const { ctx, bbox } = u;
  const y = Math.round(u.valToPos(value, "y", true));
  ctx.save();
  ctx.strokeStyle = ink("ink");
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 2 * devicePixelRatio]);
  line(ctx, bbox.left, y, bbox.left + bbox.width, y);
  ctx.restore();
}

// A short stroke in the color and the dashes of an allocator's lines.
function swatch({ color, dash }) {
  const place = make("span");
  place.innerHTML = `<svg viewBox="0 0 24 10" class="swatch" aria-hidden="true"><line x2="24" y1="5" y2="5" stroke-width="3" stroke="${color}" stroke-dasharray="${dash.join(" ")}"/></svg>`;
  return place.firstChild;
}

// Free bytes by size class under a chart, its events below those of the chart.
function freePicture(place, chart, one, free, [low, high]) {
  const canvas = make("canvas", { className: "free", role: "img", "aria-label": `free bytes of ${one.label} by the size of the free blocks, over the events` });
  const tip = make("p", { className: "tip quiet", text: "Free blocks by size: small at the bottom, large at the top; brighter means more bytes." });
  place.append(canvas, tip);
  const events = [...new Set(free.event)];
  const top = largest(free.bytes);
  const starts = new Map();
  free.event.forEach((event, n) => starts.has(event) || starts.set(event, n));
  const rows = high - low + 1, height = Math.max(56, rows * 4);
  const draw = () => {
    const scale = devicePixelRatio, width = chart.width;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    const { left, width: wide } = chart.bbox;
    const cell = canvas.height / rows;
    context.save();
    context.beginPath();
    context.rect(left, 0, wide, canvas.height);
    context.clip();
    context.fillStyle = ink("page");
    context.fillRect(left, 0, wide, canvas.height);
    for (let n = 0; n < free.event.length; n += 1) {
      const at = lastAtMost(events, free.event[n]);
      const next = at + 1 < events.length ? events[at + 1] : free.event[n] + 1;
      const x = chart.valToPos(free.event[n], "x", true), end = chart.valToPos(next, "x", true);
      if (end < left || x > left + wide) continue;
      context.fillStyle = shade(Math.log(free.bytes[n] + 1) / Math.log(top + 1));
      context.fillRect(x, canvas.height - (free.size_class[n] - low + 1) * cell, Math.max(1, end - x + 0.5), cell - 0.5);
    }
    context.restore();
    context.fillStyle = ink("faint");
    context.font = `${11 * scale}px system-ui, sans-serif`;
    context.textAlign = "right";
    context.fillText(units.bytes(2 ** (high + 1)), left - 6 * scale, 10 * scale);
    context.fillText(units.bytes(2 ** low), left - 6 * scale, canvas.height - 2 * scale);
  };
  chart.hooks.draw.push(draw);
  draw();
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const at = Math.round(chart.posToVal(event.clientX - box.left - chart.bbox.left / devicePixelRatio, "x"));
    const size = low + rows - 1 - Math.floor(((event.clientY - box.top) / box.height) * rows);
    const start = starts.get(events[lastAtMost(events, at)]);
    let words = "no free block";
    for (let n = start; n < free.event.length && free.event[n] === free.event[start]; n += 1)
      if (free.size_class[n] === size) words = `${units.count(free.blocks[n])} free blocks, ${units.bytes(free.bytes[n])}`;
    tip.textContent = `Event ${units.count(Math.max(0, at))}, ${units.bytes(2 ** size)} up to ${units.bytes(2 ** (size + 1))}: ${words}.`;
  });
}

// Colors of the scale cividis, which is perceptually uniform for color-blind readers too.
const SHADES = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];
const shade = (part) => SHADES[Math.min(SHADES.length - 1, Math.max(0, Math.floor(part * SHADES.length)))];
