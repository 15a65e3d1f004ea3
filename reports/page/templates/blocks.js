// The blocks of a program: which of them are shown, their groups, and what is alive when.
const DIMENSIONS = ["kind", "line", "module", "operator", "stream", "step"];
const UNKNOWN = "not known";
// From the bottom of a stack to its top: what lives longest first.
const KINDS = [
  "parameters", "buffers and parameters without gradients", "gradients", "optimizer state",
  "workspaces and other memory that lasts", "activations and inputs", "temporaries of the forward pass",
  "temporaries of the backward pass", "temporaries of the optimizer",
];
// Okabe and Ito's colors, and others that color-blind readers can tell from their neighbors.
const PALETTE = ["#0072b2", "#7f8fd6", "#56b4e9", "#009e73", "#8c6bb1", "#e69f00", "#f0e442", "#d55e00", "#cc79a7"];
const REST = "#8b949f";

// The path of a module with * in place of numbers: the same for all layers of a model.
const alike = (path) => path.split(".").map((part) => (/^\d+$/.test(part) ? "*" : part)).join(".");

class Blocks {
  constructor(about) {
    const { columns } = rowsOf("program", { workload: about.workload });
    this.events = about.events;
    this.first = Int32Array.from(columns.first);
    this.last = Int32Array.from(columns.last);
    this.size = Float64Array.from(columns.size);
    this.step = Int32Array.from(columns.step);
    this.site = Int32Array.from(columns.site);
    this.sites = rowsOf("sites", { workload: about.workload }).columns;
    this.sites.stream = this.sites.stream.map((number) => `stream ${number}`);
    this.grouped = new Map();
    this.only = [];
    this.filter();
  }

  get length() {
    return this.first.length;
  }

  stepName(step) {
    return step ? `step ${step}` : "before the first step";
  }

  // The groups of a dimension: their names, and the number of the group of each block.
  groups(dimension) {
    if (this.grouped.has(dimension)) return this.grouped.get(dimension);
    const names = [], numbers = new Map();
    const number = (name) => {
      if (!numbers.has(name)) numbers.set(name, names.push(name) - 1);
      return numbers.get(name);
    };
    let of;
    if (dimension === "step") of = this.step.map((step) => number(this.stepName(step)));
    else {
      const text = this.sites[dimension].map((name) => name || UNKNOWN);
      const ofSite = text.map((name) => number(dimension === "module" ? alike(name) : name));
      of = this.site.map((site) => ofSite[site]);
    }
    this.grouped.set(dimension, { names, of });
    return this.grouped.get(dimension);
  }

  // Shows only the blocks that are in each of the groups of `only`: pairs of a dimension and a name.
  filter() {
    const tests = this.only.map(({ dimension, name }) => {
      const { names, of } = this.groups(dimension);
      return [of, names.indexOf(name)];
    });
    const shown = [];
    for (let n = 0; n < this.length; n += 1)
      if (tests.every(([of, number]) => of[n] === number)) shown.push(n);
    this.shown = Int32Array.from(shown);
    const load = new Float64Array(this.events + 1);
    for (const n of this.shown) {
      load[this.first[n]] += this.size[n];
      load[this.last[n]] -= this.size[n];
    }
    for (let event = 1; event <= this.events; event += 1) load[event] += load[event - 1];
    this.load = load.subarray(0, this.events);
    this.peak = this.load.reduce((best, bytes, event) => (bytes > this.load[best] ? event : best), 0);
  }

  isAlive(n, event) {
    return this.first[n] <= event && this.last[n] > event;
  }

  // The shown blocks that are alive after an event.
  alive(event) {
    return this.shown.filter((n) => this.isAlive(n, event));
  }

  // For each group of a dimension: bytes and blocks after an event, and the most bytes at any time.
  totals(dimension, event) {
    const { names, of } = this.groups(dimension);
    const [bytes, blocks, now, most] = [0, 1, 2, 3].map(() => new Float64Array(names.length));
    for (const n of this.alive(event)) {
      bytes[of[n]] += this.size[n];
      blocks[of[n]] += 1;
    }
    const changes = this.changes();
    for (const change of changes) {
      const n = Math.abs(change) - 1;
      now[of[n]] += Math.sign(change) * this.size[n];
      if (now[of[n]] > most[of[n]]) most[of[n]] = now[of[n]];
    }
    return names.map((name, group) => ({ name, group, bytes: bytes[group], blocks: blocks[group], most: most[group] }));
  }

  // For each group of a dimension: its bytes at the peak, by which groups are ordered.
  peakOf(dimension) {
    const { names, of } = this.groups(dimension);
    const bytes = new Float64Array(names.length);
    for (const n of this.alive(this.peak)) bytes[of[n]] += this.size[n];
    return bytes;
  }

  // The allocs and frees of the shown blocks in order: a block's number from 1, negative for its free.
  changes() {
    const at = new Int32Array(this.events + 1);
    for (const n of this.shown) {
      at[this.first[n]] = n + 1;
      if (this.last[n] < this.events) at[this.last[n]] = -(n + 1);
    }
    return at.filter((change) => change !== 0);
  }

  // A level of detail: at most `most` columns, and for each the event with the most bytes.
  level([low, high], most) {
    const count = Math.max(1, Math.min(Math.floor(most), high - low));
    const begin = Int32Array.from({ length: count + 1 }, (_, n) => low + Math.floor((n * (high - low)) / count));
    const at = begin.slice(0, count);
    for (let column = 0; column < count; column += 1)
      for (let event = begin[column] + 1; event < begin[column + 1]; event += 1)
        if (this.load[event] > this.load[at[column]]) at[column] = event;
    // The first column whose event is not before the given one.
    const from = (event) => {
      if (event <= low) return 0;
      if (event >= high) return count;
      let column = Math.floor(((event - low) * count) / (high - low));
      if (begin[column + 1] <= event) column += 1;
      return at[column] >= event ? column : column + 1;
    };
    return { at, begin, count, from };
  }

  // The events at which steps begin: pairs of an event and the number of the step.
  steps() {
    const begins = [];
    for (let n = 0; n < this.length; n += 1)
      if (!begins.length || this.step[n] !== begins.at(-1)[1]) begins.push([this.first[n], this.step[n]]);
    return begins;
  }

  siteOf(n) {
    return Object.fromEntries(Object.entries(this.sites).map(([name, column]) => [name, column[this.site[n]]]));
  }
}
