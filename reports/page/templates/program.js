// Memory over time, stacked by what it holds; what is alive at an instant; all share the instant.
const ROWS_AT_FIRST = 10;

// What a key does in a chart of events, with the instant `at` and the last event `end` in sight.
function act(key, chart, at, end, others) {
  const [low, high] = chart.range, span = high - low;
  const step = Math.max(1, span / (key.shiftKey ? 20 : 200));
  const actions = {
    ArrowLeft: () => chart.moveTo(at - step),
    ArrowRight: () => chart.moveTo(at + step),
    Home: () => chart.moveTo(low),
    End: () => chart.moveTo(end),
    "+": () => chart.zoom(at - span / 4, at + span / 4),
    "=": () => chart.zoom(at - span / 4, at + span / 4),
    "-": () => chart.zoom(at - span, at + span),
    ...others,
  };
  if (!actions[key.key] || key.ctrlKey || key.metaKey) return;
  key.preventDefault();
  actions[key.key]();
}

// The button of a table that does not have all rows at first.
function tellMore(root, count, every, toggle) {
  const more = root.querySelector("button.more");
  more.hidden = count <= ROWS_AT_FIRST;
  more.textContent = every ? "Show fewer" : `Show all ${count}`;
  more.onclick = toggle;
}

class Program extends StackedArea {
  constructor(root, about) {
    super();
    this.root = root;
    this.about = about;
    this.blocks = new Blocks(about);
    const key = { workload: about.workload, device: about.device, allocator: about.reference };
    const only = (table, column) => (rowsOf(table, key).columns[column] || [])[0] ?? null;
    this.capacity = only("capacity", "bytes");
    this.failure = only("failures", "event");
    this.request = only("failures", "requested");
    this.reserved = rowsOf("memory", key).columns;
    this.range = [0, this.blocks.events];
    this.event = this.failure === null ? this.blocks.peak : Math.max(0, this.failure - 1);
    [this.base, this.canvas] = root.querySelectorAll("canvas");
    this.dimension = root.querySelector("select[name=dimension]");
    this.block = null;
    this.pointed = null;
    this.everyRow = false;
    this.flame = new Flame(root.querySelector(".flame"), this);
    this.layers = new Layers(root.querySelector(".layers"), this);
    this.fillDimensions();
    this.listen();
    this.filter(null);
  }

  // Offers the dimensions that tell blocks apart; the first is one that knows most of the bytes.
  fillDimensions() {
    const useful = DIMENSIONS.filter((name) => this.blocks.groups(name).names.length > 1);
    const offered = useful.length ? useful : ["size"];
    this.dimension.append(...offered.map((name) => make("option", { value: name, text: name })));
    const known = (name) => {
      const totals = this.blocks.totals(name, this.event);
      const bytes = sum(totals.map((one) => one.bytes));
      return sum(totals.filter((one) => one.name !== UNKNOWN).map((one) => one.bytes)) >= bytes / 2;
    };
    this.dimension.value = offered.find(known) || offered[0];
  }

  listen() {
    const { root, canvas } = this;
    const on = (selector, event, act) => root.querySelector(selector).addEventListener(event, act);
    this.dimension.addEventListener("change", () => this.update());
    on("button[name=peak]", "click", () => this.moveTo(this.blocks.peak));
    on("button[name=reset]", "click", () => this.zoom(0, this.blocks.events));
    const failure = root.querySelector("button[name=failure]");
    failure.hidden = this.failure === null;
    failure.addEventListener("click", () => this.moveTo(Math.max(0, this.failure - 1)));
    on(".alive", "toggle", () => this.list());
    on(".alive button", "click", () => download(`${this.about.id}-blocks.csv`, csv(this.listed())));
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.hover(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => { this.pressed = null; });
    canvas.addEventListener("pointerleave", () => this.select(null));
    canvas.addEventListener("dblclick", () => this.zoom(0, this.blocks.events));
    canvas.addEventListener("keydown", (event) => this.key(event));
    addEventListener("resize", () => this.draw());
    addEventListener("look", () => this.update());
  }

  // Shows only one more group, or takes the limits from `only` away; null for no change.
  filter(only) {
    if (only) this.blocks.only = only;
    this.blocks.filter();
    if (only) this.event = this.blocks.alive(this.event).length ? this.event : this.blocks.peak;
    this.block = null;
    const chips = this.blocks.only.map((one) => {
      const others = this.blocks.only.filter((other) => other !== one);
      const chip = make("button", { type: "button", className: "chip", "aria-pressed": "true", text: `only ${one.dimension} ${one.name} ✕` });
      chip.addEventListener("click", () => this.filter(others));
      return chip;
    });
    this.root.querySelector(".only").replaceChildren(...chips);
    this.update();
  }

  restrict(dimension, name) {
    if (this.blocks.only.some((one) => one.dimension === dimension && one.name === name)) return;
    this.filter([...this.blocks.only, { dimension, name }]);
  }

  moveTo(event) {
    const [low, high] = this.range;
    this.event = Math.round(Math.min(Math.max(event, 0), this.blocks.events - 1));
    this.block = null;
    if (this.event < low || this.event >= high) this.zoom(this.event - (high - low) / 2, this.event + (high - low) / 2);
    this.tell();
  }

  zoom(low, high) {
    const most = this.blocks.events;
    const width = Math.min(most, Math.max(8, Math.round(high - low)));
    const begin = Math.min(Math.max(0, Math.round(low)), most - width);
    this.range = [begin, begin + width];
    this.draw();
  }

  update() {
    this.draw();
    if (this.level) this.tell();
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return; // in a tab that is not shown
    this.place = { left: width < 500 ? 62 : 70, top: 20, width: width - 76, height: width < 500 ? 220 : 300 };
    this.measure();
    this.paint(sized(this.base, width, this.place.height + 44));
    this.overlay();
  }

  // Points at a large block, or at what `find` found.
  select(n, found = null) {
    if (n === null && found === null && this.block === null && this.pointed === null) return;
    this.block = n;
    this.pointed = found;
    this.overlay();
    this.tellBlock();
  }

  position(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  press(event) {
    if (event.button) return;
    const [x] = this.position(event);
    this.pressed = { x, at: x };
    this.canvas.setPointerCapture(event.pointerId);
  }

  hover(event) {
    const [x, y] = this.position(event);
    if (!this.pressed) {
      const found = this.find(x, y);
      this.select(found && found.block, found);
      return;
    }
    this.pressed.at = x;
    this.overlay();
  }

  release(event) {
    if (!this.pressed) return;
    const [x, y] = this.position(event);
    const { x: begin } = this.pressed;
    this.pressed = null;
    const [low, high] = this.range;
    const at = (place) => low + ((place - this.place.left) / this.place.width) * (high - low);
    if (Math.abs(x - begin) > 5) {
      this.zoom(Math.max(low, Math.min(at(x), at(begin))), Math.min(high, Math.max(at(x), at(begin))));
      return;
    }
    const found = this.find(x, y);
    if (found === null) return;
    this.event = this.level.at[found.column];
    if (found.block !== null) this.follow(found.block);
    else this.tell();
  }

  // Shows all blocks that come from where a block comes from.
  follow(n) {
    const site = this.blocks.siteOf(n);
    const dimension = ["line", "operator", "module", "kind"].find((name) => site[name]) || "stream";
    const name = dimension === "module" ? alike(site.module) : site[dimension];
    this.restrict(dimension, name);
    this.select(n);
  }

  key(event) {
    act(event, this, this.event, this.range[1] - 1, {
      ArrowUp: () => this.next(1),
      ArrowDown: () => this.next(-1),
      Enter: () => this.block !== null && this.follow(this.block),
      0: () => this.zoom(0, this.blocks.events),
      Escape: () => (this.blocks.only.length ? this.filter(this.blocks.only.slice(0, -1)) : this.select(null)),
    });
  }

  // The next large block upwards or downwards at the instant.
  next(direction) {
    const alive = this.large.flat().filter((n) => this.blocks.isAlive(n, this.event));
    if (!alive.length) return;
    const at = this.block === null ? (direction > 0 ? -1 : 0) : alive.indexOf(this.block);
    this.select(alive[(at + direction + alive.length) % alive.length]);
  }

  // Everything that depends on the instant.
  tell() {
    this.totals = this.blocks.totals(this.dimension.value, this.event);
    this.overlay();
    this.tellInstant();
    this.tellBlock();
    this.tellGroups();
    this.list();
    this.flame.draw();
    this.layers.draw();
  }

  tellInstant() {
    const { about, blocks, event } = this;
    const alive = blocks.alive(event);
    const step = blocks.steps().findLast(([begin]) => begin <= event);
    const where = step && blocks.steps().length > 1 ? `, ${blocks.stepName(step[1])}` : "";
    const which = event === this.failure - 1 && this.failure !== null ? ", before the request that fails" : event === blocks.peak ? ", the peak" : "";
    const at = this.reserved.event ? lastAtMost(this.reserved.event, event) : -1;
    const reserved = at < 0 || blocks.only.length ? "" : `; ${report.looks[about.reference].label} holds ${units.bytes(this.reserved.reserved[at])}`;
    const limit = this.capacity === null || blocks.only.length ? "" : ` of ${units.bytes(this.capacity)}`;
    this.root.querySelector(".readout").textContent =
      `Event ${units.count(event)}${where}${which}: ${units.bytes(blocks.load[event])} in ${units.count(alive.length)} ${alive.length === 1 ? "block" : "blocks"}${reserved}${limit}.`;
  }

  tellBlock() {
    const place = this.root.querySelector(".block");
    if (this.block === null) {
      place.textContent = this.pointed ? this.smallBlocks(this.pointed)
        : "Point at a block to see what it is; click to see all blocks of its line; drag to zoom in.";
      return;
    }
    const { blocks, block: n } = this;
    const site = blocks.siteOf(n);
    const freed = blocks.last[n] >= blocks.events ? "never freed" : `freed at event ${units.count(blocks.last[n])}`;
    const from = [site.line, site.operator, site.module && `module ${site.module}`].filter(Boolean).join(", ");
    place.textContent = `${units.bytes(blocks.size[n])}${site.kind ? `, ${site.kind}` : ""}${from ? `: ${from}` : ""}. Allocated at event ${units.count(blocks.first[n])}, ${blocks.stepName(blocks.step[n])}; ${freed}.${site.stack ? ` Called by ${site.stack.split(";").join(" › ")}` : ""}`;
  }

  // The blocks of a layer that are too small to be drawn one by one.
  smallBlocks({ column, layer }) {
    const { blocks } = this;
    const event = this.level.at[column];
    const { names, of } = blocks.groups(this.dimension.value);
    const large = new Set(this.large[layer]);
    let count = 0, bytes = 0;
    for (const n of blocks.shown) {
      if (blocks.first[n] > event) break;
      if (!blocks.isAlive(n, event) || this.layerOf[of[n]] !== layer || large.has(n)) continue;
      count += 1;
      bytes += blocks.size[n];
    }
    const { group } = this.stack[layer];
    return `${group === null ? "other" : names[group]} at event ${units.count(event)}: ${units.count(count)} small blocks, ${units.bytes(bytes)}. Click a name in the table to see only these.`;
  }

  // The holders of memory: the legend of the chart, with the numbers at the instant.
  tellGroups() {
    const total = this.blocks.load[this.event];
    const rows = this.totals.filter((one) => one.most).sort((a, b) => b.bytes - a.bytes || b.most - a.most);
    const shown = this.everyRow ? rows : rows.slice(0, ROWS_AT_FIRST);
    const body = make("tbody", {}, ...shown.map((one) => {
      const mark = make("i", {});
      mark.style.background = this.stack[this.layerOf[one.group]].color;
      const name = make("button", { type: "button", className: "group", title: "Show only these blocks" }, mark, make("span", { className: "name", text: one.name }));
      name.addEventListener("click", () => this.restrict(this.dimension.value, one.name));
      const share = make("td", { text: units.percent(total ? one.bytes / total : 0) });
      share.style.setProperty("--part", `${total ? (100 * one.bytes) / total : 0}%`);
      share.className = "part";
      return make("tr", {}, make("th", { scope: "row" }, name), make("td", { text: units.bytes(one.bytes) }), share,
        make("td", { text: units.count(one.blocks) }), make("td", { text: units.bytes(one.most) }));
    }));
    const head = [this.dimension.value, "bytes now", "share", "blocks", "most at any time"];
    this.root.querySelector(".holders table").replaceChildren(tableHead(head), body);
    const all = () => { this.everyRow = !this.everyRow; this.tellGroups(); };
    tellMore(this.root.querySelector(".holders"), rows.length, this.everyRow, all);
  }

  // The blocks that are alive at the instant; if only some groups are shown, all of their blocks.
  listed() {
    const { blocks } = this;
    const chosen = blocks.only.length ? blocks.shown : blocks.alive(this.event);
    const order = [...chosen].sort((a, b) => blocks.size[b] - blocks.size[a] || a - b);
    const columns = {};
    for (const name of ["size", "first", "last", "step"]) columns[name] = order.map((n) => blocks[name][n]);
    for (const [name, column] of Object.entries(blocks.sites))
      if (name !== "workload" && name !== "derived") columns[name] = order.map((n) => column[blocks.site[n]]);
    return { columns, length: order.length };
  }

  list() {
    const details = this.root.querySelector(".alive");
    details.querySelector("summary").textContent = this.blocks.only.length ? "All blocks of this selection" : "Blocks at this instant";
    const place = details.querySelector(".place");
    place.replaceChildren();
    if (details.open) place.append(dataTable(this.listed()));
  }
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
