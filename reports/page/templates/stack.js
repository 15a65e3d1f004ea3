// The picture of memory over time: requested bytes stacked by group, and what limits them.
const MOST_GROUPS = PALETTE.length; // with a color of their own
const LEAST_PIXELS = 3; // height of a block with an outline of its own

// The grid of a chart of bytes over events, with its scales.
function paintGrid(context, { left, top, width, height }, most, range) {
  const [low, high] = range;
  context.font = "12px system-ui, sans-serif";
  context.textAlign = "right";
  for (const bytes of byteSplits(units.bytes)(null, null, 0, most)) {
    const y = top + height * (1 - bytes / most);
    context.fillStyle = ink("line");
    context.fillRect(left, Math.round(y), width, 1);
    context.fillStyle = ink("faint");
    context.fillText(units.bytes(bytes), left - 8, y + 4);
  }
  context.textAlign = "center";
  for (const event of ticks(range, width / 110))
    context.fillText(short(event), left + ((event - low) / (high - low)) * width, top + height + 17);
  context.textAlign = "left";
}

function paintLimit(context, { left, width }, y) {
  context.strokeStyle = ink("failed");
  context.lineWidth = 2;
  context.setLineDash([7, 4]);
  line(context, left, y, left + width, y);
  context.setLineDash([]);
}

// Words about the limit, which can be read on any color.
function paintWords(context, words, x, y) {
  context.font = "600 12px system-ui, sans-serif";
  context.fillStyle = ink("paper");
  context.globalAlpha = 0.85;
  context.fillRect(x - 3, y - 12, context.measureText(words).width + 6, 16);
  context.globalAlpha = 1;
  context.fillStyle = ink("failed");
  context.fillText(words, x, y);
}

class StackedArea {
  // The columns of the chart, and in each the bytes of every group and the place of every large block.
  measure() {
    const { blocks, place } = this;
    const { names, of } = blocks.groups(this.dimension.value);
    this.order(names);
    this.level = blocks.level(this.range, place.width);
    const { count, from } = this.level;
    this.bases = [new Float64Array(count)];
    this.top = this.highest();
    const least = (LEAST_PIXELS * this.top) / place.height;
    const layers = this.stack.map(() => new Float64Array(count + 1));
    this.large = layers.map(() => []);
    const [low, high] = this.range;
    for (const n of blocks.shown) {
      if (blocks.first[n] >= high) break;
      if (blocks.last[n] <= low) continue;
      const begin = from(blocks.first[n]), end = from(blocks.last[n]);
      if (begin === end) continue;
      const layer = this.layerOf[of[n]];
      layers[layer][begin] += blocks.size[n];
      layers[layer][end] -= blocks.size[n];
      if (blocks.size[n] >= least) this.large[layer].push(n);
    }
    for (const layer of layers) {
      for (let column = 1; column <= count; column += 1) layer[column] += layer[column - 1];
      this.bases.push(this.bases.at(-1).map((below, column) => below + layer[column]));
    }
  }

  // The largest groups have a layer and a color each, the others share one; known kinds have their own.
  order(names) {
    const totals = this.blocks.totals(this.dimension.value, this.blocks.peak);
    const ranked = totals.filter((one) => one.most).sort((a, b) => b.bytes - a.bytes || b.most - a.most);
    let shown = ranked.filter((one) => one.name !== UNKNOWN).slice(0, MOST_GROUPS);
    const ofKind = this.dimension.value === "kind";
    const place = (one) => (KINDS.indexOf(one.name) + 1 || KINDS.length + 1) - 1;
    if (ofKind) shown = shown.sort((a, b) => place(a) - place(b));
    const free = PALETTE.filter((_, n) => !ofKind || !shown.some((one) => place(one) === n));
    this.stack = [...shown.map((one) => ({ group: one.group, color: ofKind && place(one) < KINDS.length ? PALETTE[place(one)] : free.shift() || REST })), { group: null, color: REST }];
    this.layerOf = Int32Array.from(names, () => this.stack.length - 1);
    this.stack.forEach(({ group }, layer) => { if (group !== null) this.layerOf[group] = layer; });
  }

  // The top of the scale: the limit of the device is in the picture unless it is far above.
  highest() {
    const all = this.blocks.only.length > 0;
    const bytes = Math.max(1, this.blocks.load[this.blocks.peak], all ? 0 : largest(this.reserved.reserved));
    this.hasLimit = !all && this.capacity !== null && this.capacity < 1.6 * bytes;
    return 1.08 * (this.hasLimit ? Math.max(bytes, this.capacity) : bytes);
  }

  x(event) {
    const [low, high] = this.range;
    return this.place.left + ((event - low) / (high - low)) * this.place.width;
  }

  y(bytes) {
    return this.place.top + this.place.height * (1 - bytes / this.top);
  }

  paint(context) {
    const { left, top, width, height } = this.place;
    const { count, begin } = this.level;
    this.paintAxes(context);
    context.save();
    context.beginPath();
    context.rect(left, top, width, height);
    context.clip();
    const edges = Float64Array.from(begin, (event) => this.x(event));
    this.stack.forEach(({ color }, layer) => {
      context.fillStyle = color;
      context.beginPath();
      context.moveTo(edges[0], this.y(0));
      const [low, high] = [this.bases[layer], this.bases[layer + 1]];
      for (let column = 0; column < count; column += 1) {
        context.lineTo(edges[column], this.y(high[column]));
        context.lineTo(edges[column + 1], this.y(high[column]));
      }
      for (let column = count - 1; column >= 0; column -= 1) {
        context.lineTo(edges[column + 1], this.y(low[column]));
        context.lineTo(edges[column], this.y(low[column]));
      }
      context.fill();
    });
    this.paintOutlines(context, edges);
    this.paintLimits(context);
    context.restore();
    this.paintLabels(context);
  }

  paintAxes(context) {
    const { left, top, width, height } = this.place;
    context.font = "12px system-ui, sans-serif";
    context.lineWidth = 1;
    this.blocks.steps().forEach(([event, step], n, all) => {
      if (all.length < 2) return;
      const x = Math.max(left, this.x(event)), end = Math.min(left + width, this.x(n + 1 < all.length ? all[n + 1][0] : this.blocks.events));
      if (end <= x) return;
      if (step % 2) {
        context.fillStyle = ink("band");
        context.fillRect(x, top, end - x, height);
      }
      const words = step ? `step ${step}` : "start";
      context.fillStyle = ink("faint");
      if (context.measureText(words).width < end - x) context.fillText(words, x + 2, top - 7);
    });
    paintGrid(context, this.place, this.top, this.range);
  }

  // A thin line between blocks that are high enough to be seen.
  paintOutlines(context, edges) {
    const { from, count } = this.level;
    context.strokeStyle = ink("paper");
    context.globalAlpha = 0.55;
    context.lineWidth = 0.75;
    context.beginPath();
    this.large.forEach((large, layer) => {
      const base = this.bases[layer];
      let next = 0, alive = [];
      const runs = new Map(); // of each block: where its top began to be at one height
      const end = (n, column) => {
        const run = runs.get(n);
        context.moveTo(edges[run.column], run.y);
        context.lineTo(edges[column], run.y);
      };
      for (let column = 0; column < count; column += 1) {
        const rest = alive.filter((n) => from(this.blocks.last[n]) > column);
        if (rest.length < alive.length)
          for (const n of alive) if (from(this.blocks.last[n]) <= column) end(n, column);
        alive = rest;
        for (; next < large.length && from(this.blocks.first[large[next]]) <= column; next += 1) alive.push(large[next]);
        let bytes = base[column];
        for (const n of alive) {
          bytes += this.blocks.size[n];
          const y = this.y(bytes), run = runs.get(n);
          if (run && run.y === y) continue;
          if (run) end(n, column);
          runs.set(n, { column, y });
        }
      }
      for (const n of alive) end(n, count);
    });
    context.stroke();
    context.globalAlpha = 1;
  }

  paintLimits(context) {
    const { left, top, width, height } = this.place;
    if (!this.blocks.only.length && this.reserved.event) {
      context.strokeStyle = ink("ink");
      context.lineWidth = 1.5;
      const { event, reserved } = this.reserved;
      const steps = event.flatMap((at, n) => [[this.x(at), this.y(reserved[Math.max(0, n - 1)])], [this.x(at), this.y(reserved[n])]]);
      stroke(context, [...steps, [left + width, this.y(reserved.at(-1) ?? 0)]]);
    }
    if (this.hasLimit) paintLimit(context, this.place, this.y(this.capacity));
    if (this.failure !== null) {
      const x = this.x(this.failure);
      context.globalAlpha = 0.6;
      context.fillStyle = ink("paper");
      context.fillRect(x, top, left + width - x, height);
      context.globalAlpha = 1;
      context.strokeStyle = ink("failed");
      context.lineWidth = 2;
      line(context, x, top, x, top + height);
    }
  }

  paintLabels(context) {
    const { left, top, width } = this.place;
    const said = []; // begin, end and y of each label: another one stands below it
    const say = (words, x, wanted) => {
      const wide = context.measureText(words).width;
      const at = Math.min(Math.max(x, left + 4), left + width - wide - 4);
      const below = said.filter(([from, to, y]) => from < at + wide && at < to && Math.abs(y - wanted) < 18);
      const y = Math.max(wanted, ...below.map((one) => one[2] + 18));
      said.push([at, at + wide, y]);
      paintWords(context, words, at, y);
    };
    context.font = "600 12px system-ui, sans-serif";
    if (this.hasLimit) say(`limit of ${this.about.card}: ${units.bytes(this.capacity)}`, left + 8, this.y(this.capacity) - 5);
    if (this.failure !== null && this.failure >= this.range[0] && this.failure < this.range[1])
      say(`a request for ${units.bytes(this.request)} fails`, this.x(this.failure) + 6, top + 44);
  }

  // The overlay: the instant, the block that is pointed at, and the range that is being dragged.
  overlay() {
    const context = sized(this.canvas, this.canvas.clientWidth, this.place.height + 44);
    const { left, top, width, height } = this.place;
    const x = this.x(this.event + 0.5);
    context.strokeStyle = ink("ink");
    context.lineWidth = 1;
    if (x >= left && x <= left + width) line(context, x, top, x, top + height);
    if (this.block !== null) this.outline(context, this.block);
    if (this.pressed && this.pressed.x !== this.pressed.at) {
      context.fillStyle = ink("link");
      context.globalAlpha = 0.25;
      context.fillRect(this.pressed.x, top, this.pressed.at - this.pressed.x, height);
      context.globalAlpha = 1;
    }
  }

  // The strip of one large block over its life.
  outline(context, n) {
    const { from, begin } = this.level;
    const { of } = this.blocks.groups(this.dimension.value);
    const layer = this.layerOf[of[n]];
    const start = from(this.blocks.first[n]), end = from(this.blocks.last[n]);
    const below = this.bases[layer].slice();
    for (const other of this.large[layer]) {
      if (other === n) break;
      for (let column = Math.max(start, from(this.blocks.first[other])); column < Math.min(end, from(this.blocks.last[other])); column += 1)
        below[column] += this.blocks.size[other];
    }
    context.beginPath();
    for (let column = start; column < end; column += 1) {
      const x = this.x(begin[column]), y = this.y(below[column] + this.blocks.size[n]);
      context.rect(x, y, this.x(begin[column + 1]) - x + 0.5, this.y(below[column]) - y);
    }
    context.fillStyle = ink("ink");
    context.globalAlpha = 0.55;
    context.fill();
    context.globalAlpha = 1;
  }

  // What is at a point of the chart: a column, a layer and a large block (null for small ones), or
  // null.
  find(x, y) {
    const { left, width, top, height } = this.place;
    const [low, high] = this.range;
    const event = low + ((x - left) / width) * (high - low);
    if (event < low || event >= high) return null;
    const column = Math.min(this.level.count - 1, Math.floor(((x - left) / width) * this.level.count));
    const bytes = (1 - (y - top) / height) * this.top;
    const layer = this.bases.findIndex((base, n) => n > 0 && bytes >= this.bases[n - 1][column] && bytes < base[column]) - 1;
    if (layer < 0) return null;
    let above = this.bases[layer][column];
    for (const n of this.large[layer]) {
      if (!this.blocks.isAlive(n, this.level.at[column])) continue;
      above += this.blocks.size[n];
      if (bytes < above) return { column, layer, block: n };
    }
    return { column, layer, block: null };
  }
}

// Gives a canvas its size in pixels of the page and returns its empty context.
function sized(canvas, width, height) {
  const scale = Math.max(1, devicePixelRatio);
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  return context;
}

// The entries of a legend: a color and words each.
function fillLegend(root, entries) {
  root.querySelector(".legend").replaceChildren(...entries.map(([color, words]) => make("li", {}, make("i", { style: `background: ${color}` }), words)));
}

// A line through points.
function stroke(context, points) {
  context.beginPath();
  for (const point of points) context.lineTo(...point); // the first one begins the path
  context.stroke();
}

const line = (context, x, y, toX, toY) => stroke(context, [[x, y], [toX, toY]]);

// Round numbers in a range, about `count` of them.
function ticks([low, high], count) {
  const rough = Math.max(1, (high - low) / Math.max(1, count));
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough));
  const found = [];
  for (let at = Math.ceil(low / step) * step; at < high; at += step) found.push(at);
  return found;
}
