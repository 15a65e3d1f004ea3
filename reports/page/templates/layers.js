// The modules of a model as a tree: the shape of what each returns, where it was recorded, what it
// and its children hold at the instant, and the most bytes of its temporaries at any time.
const OF_LAYERS = [
  ["parameters", ["parameters", "buffers and parameters without gradients"]],
  ["gradients", ["gradients"]],
  ["optimizer state", ["optimizer state"]],
  ["activations", ["activations and inputs"]],
];
const isTemporary = (kind) => kind.startsWith("temporaries");

class Layers {
  constructor(root, program) {
    this.root = root;
    this.program = program;
    this.opened = new Set([""]);
    this.every = false;
    root.hidden = !program.blocks.sites.module.some(Boolean);
    const { module, shape } = rowsOf("shapes", { workload: program.about.workload }).columns;
    this.shapes = new Map((module || []).map((path, n) => [path, shape[n]]));
  }

  draw() {
    if (this.root.hidden) return;
    const { blocks, event } = this.program;
    const parents = blocks.sites.module.map((path) => path ? path.split(".").map((_, n, parts) => parts.slice(0, n + 1).join(".")) : []);
    const rows = new Map();
    const row = (path) => {
      if (!rows.has(path)) rows.set(path, { path, bytes: OF_LAYERS.map(() => 0), most: 0, children: 0 });
      return rows.get(path);
    };
    for (const paths of parents) paths.forEach(row);
    for (const path of rows.keys()) {
      const parent = path.slice(0, Math.max(0, path.lastIndexOf(".")));
      if (parent) row(parent).children += 1;
    }
    const column = blocks.sites.kind.map((kind) => OF_LAYERS.findIndex(([, kinds]) => kinds.includes(kind)));
    for (const n of blocks.alive(event)) {
      const site = blocks.site[n];
      if (column[site] >= 0) for (const path of parents[site]) row(path).bytes[column[site]] += blocks.size[n];
    }
    for (const [path, most] of this.temporaries(parents)) row(path).most = most;
    this.fill([...rows.values()].sort((a, b) => a.path.localeCompare(b.path, "en", { numeric: true })));
  }

  // The most bytes of temporaries at any time of each module with its children.
  temporaries(parents) {
    const { blocks } = this.program;
    return blocks.once("temporaries", () => {
      const temporary = blocks.sites.kind.map((kind) => isTemporary(kind) || kind === "");
      const now = new Map(), most = new Map();
      blocks.changes((n, size) => {
        const site = blocks.site[n];
        if (!temporary[site]) return;
        for (const path of parents[site]) {
          const bytes = (now.get(path) || 0) + size;
          now.set(path, bytes);
          if (bytes > (most.get(path) || 0)) most.set(path, bytes);
        }
      });
      return most;
    });
  }

  fill(rows) {
    const body = make("tbody");
    const outer = rows.map(({ path }) => path).filter((path) => !path.includes("."));
    const shown = new Set(this.every ? outer : outer.slice(0, ROWS_AT_FIRST));
    tellMore(this.root, outer.length, this.every, () => { this.every = !this.every; this.fill(rows); });
    for (const { path, bytes, most, children } of rows) {
      const parts = path.split(".");
      if (!shown.has(parts[0]) || !parts.slice(0, -1).every((_, n) => this.opened.has(parts.slice(0, n + 1).join(".")))) continue;
      const name = parts.at(-1);
      const label = children
        ? make("button", { type: "button", className: "plain", "aria-expanded": String(this.opened.has(path)), text: `${name} (${children})` })
        : make("span", { text: name });
      label.dataset.path = path;
      label.addEventListener("click", () => {
        if (!children) return;
        if (!this.opened.delete(path)) this.opened.add(path);
        this.fill(rows);
        [...body.ownerDocument.querySelectorAll(".layers [aria-expanded]")].find((one) => one.dataset.path === path)?.focus();
      });
      const head = make("th", { scope: "row" }, label);
      head.style.paddingLeft = `${10 + 18 * (parts.length - 1)}px`;
      const shape = this.shapes.size ? [make("td", { className: "shape", text: this.shapes.get(path) || "–" })] : [];
      body.append(make("tr", {}, head, ...shape, ...[...bytes, most].map((size) => make("td", { text: size ? units.bytes(size) : "–" }))));
    }
    const head = ["module", ...(this.shapes.size ? ["output shape"] : []), ...OF_LAYERS.map(([name]) => name), "temporaries, at most"];
    this.root.querySelector("table").replaceChildren(tableHead(head), body);
  }
}
