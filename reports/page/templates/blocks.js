// The blocks of a program: which of them are shown, their groups, and what is alive when.
const DIMENSIONS = ["kind", "line", "module", "operator", "size", "step", "stream"];
const UNKNOWN = "not known";
// From the bottom of a stack to its top: what lives longest first.
const KINDS = [
  "parameters", "buffers and parameters without gradients", "gradients", "optimizer state",
  "workspaces and other memory that lasts", "results and graphs that the program keeps", "activations and inputs",
  "temporaries of the forward pass",
  "temporaries of the backward pass", "temporaries of the optimizer",
];
// Okabe and Ito's colors, and others that color-blind readers can tell from their neighbors.
const PALETTE = ["#0072b2", "#7f8fd6", "#56b4e9", "#009e73", "#8c6bb1", "#a0785a", "#e69f00", "#f0e442", "#d55e00", "#cc79a7"];
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
    else if (dimension === "size") of = Int32Array.from(this.size, (size) => number(units.bytes(size)));
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
    const shown = new Int32Array(this.length), load = new Float64Array(this.events + 1);
    let count = 0;
    for (let n = 0; n < this.length; n += 1) {
      if (tests.length && !tests.every(([of, number]) => of[n] === number)) continue;
      shown[count] = n;
      count += 1;
      load[this.first[n]] += this.size[n];
      load[this.last[n]] -= this.size[n];
    }
    this.shown = shown.subarray(0, count);
    this.peak = 0;
    for (let event = 1; event < this.events; event += 1) {
      load[event] += load[event - 1];
      if (load[event] > load[this.peak]) this.peak = event;
    }
    this.load = load.subarray(0, this.events);
    this.now = null;
    this.found = new Map(); // what `once` has computed for these blocks
  }

  // The result of a function of the shown blocks, computed once.
  once(name, compute) {
    if (!this.found.has(name)) this.found.set(name, compute());
    return this.found.get(name);
  }

  isAlive(n, event) {
    return this.first[n] <= event && this.last[n] > event;
  }

  // The shown blocks that are alive after an event; those of the last event are kept.
  alive(event) {
    if (this.now === event) return this.living;
    this.now = event;
    this.living = [];
    for (const n of this.shown) {
      if (this.first[n] > event) break;
      if (this.last[n] > event) this.living.push(n);
    }
    return this.living;
  }

  // For each group of a dimension: bytes and blocks after an event, and the most bytes at any time.
  totals(dimension, event) {
    const { names, of } = this.groups(dimension);
    const bytes = new Float64Array(names.length), blocks = new Float64Array(names.length);
    for (const n of this.alive(event)) {
      bytes[of[n]] += this.size[n];
      blocks[of[n]] += 1;
    }
    const most = this.most(dimension);
    return names.map((name, group) => ({ name, group, bytes: bytes[group], blocks: blocks[group], most: most[group] }));
  }

  most(dimension) {
    return this.once(`most ${dimension}`, () => {
      const { names, of } = this.groups(dimension);
      const now = new Float64Array(names.length), most = new Float64Array(names.length);
      this.changes((n, size) => {
        now[of[n]] += size;
        if (now[of[n]] > most[of[n]]) most[of[n]] = now[of[n]];
      });
      return most;
    });
  }

  // Calls a function for the allocs and frees of the shown blocks in order, with the block and the
  // bytes that are added.
  changes(act) {
    const at = this.once("changes", () => {
      const numbers = new Int32Array(this.events + 1); // a block from 1 on, negative for its free
      for (const n of this.shown) {
        numbers[this.first[n]] = n + 1;
        if (this.last[n] < this.events) numbers[this.last[n]] = -(n + 1);
      }
      return numbers;
    });
    for (const change of at)
      if (change > 0) act(change - 1, this.size[change - 1]);
      else if (change < 0) act(-change - 1, -this.size[-change - 1]);
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
    if (!this.begins) {
      this.begins = [];
      for (let n = 0; n < this.length; n += 1)
        if (!n || this.step[n] !== this.step[n - 1]) this.begins.push([this.first[n], this.step[n]]);
    }
    return this.begins;
  }

  siteOf(n) {
    return Object.fromEntries(Object.entries(this.sites).map(([name, column]) => [name, column[this.site[n]]]));
  }
}
