// Host time of an alloc against peak reserved bytes: a mark for the median, a line to the 99th
// percentile. Allocators that failed requests are gray, outside of the scale and of the front.
class Trade {
  constructor(root, about) {
    this.root = root;
    this.about = about;
    this.canvas = root.querySelector("canvas");
    const { columns, length } = rowsOf("rows", { workload: about.workload, device: about.device });
    const every = Array.from({ length }, (_, n) => ({
      name: columns.allocator[n],
      label: about.allocators.find(({ name }) => name === columns.allocator[n])?.label || columns.allocator[n],
      candidate: columns.candidate[n],
      failed: columns.failures ? columns.failures[n] > 0 : false,
      bytes: columns.peak_reserved[n],
      median: columns.alloc_p50_seconds[n],
      slow: columns.alloc_p99_seconds[n],
    })).filter((one) => one.bytes !== null && one.median !== null && one.slow !== null);
    const fits = 1.25 * Math.max(...every.filter((one) => one.candidate && !one.failed).map((one) => one.bytes));
    this.shown = every.filter((one) => !one.failed && !(one.bytes > fits));
    const others = every.filter((one) => !this.shown.includes(one));
    const left = others.map((one) => `${one.label} (${one.failed ? "failed requests" : units.bytes(one.bytes)})`);
    root.querySelector("p.quiet").textContent = left.length ? `Outside of the scale: ${left.join(", ")}.` : "";
    if (!this.shown.length) this.canvas.style.display = "none";
    onChange(() => this.draw());
    this.draw();
  }

  // The allocators that no other candidate beats in both numbers, in order of bytes.
  front() {
    const found = [];
    for (const one of this.shown.filter(({ candidate }) => candidate).sort((a, b) => a.bytes - b.bytes || a.median - b.median))
      if (!found.length || one.median < found.at(-1).median) found.push(one);
    return found;
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width || !this.shown.length) return;
    const place = { left: 66, top: 12, width: width - 82, height: width < 500 ? 260 : 300 };
    const context = sized(this.canvas, width, place.height + 52);
    const x = scale(this.shown.map((one) => one.bytes), place.left + 10, place.width - 20, false);
    const y = scale(this.shown.flatMap((one) => [one.median, one.slow]), place.top + place.height - 8, 16 - place.height, true);
    context.font = "12px system-ui, sans-serif";
    context.textAlign = "right";
    for (const seconds of y.ticks) {
      context.fillStyle = ink("line");
      context.fillRect(place.left, Math.round(y.at(seconds)), place.width, 1);
      context.fillStyle = ink("faint");
      context.fillText(units.seconds(seconds), place.left - 8, y.at(seconds) + 4);
    }
    context.textAlign = "center";
    x.ticks.filter((_, n) => n % Math.ceil(x.ticks.length / Math.max(2, Math.floor(place.width / 90))) === 0).forEach((bytes) => {
      context.fillStyle = ink("line");
      context.fillRect(Math.round(x.at(bytes)), place.top, 1, place.height);
      context.fillStyle = ink("faint");
      context.fillText(units.bytes(bytes), x.at(bytes), place.top + place.height + 18);
    });
    context.fillText("peak reserved bytes", place.left + place.width / 2, place.top + place.height + 38);
    context.textAlign = "left";
    context.strokeStyle = ink("floor");
    context.lineWidth = 1;
    stroke(context, this.front().flatMap((one, n, all) =>
      [[x.at(one.bytes), y.at(all[Math.max(0, n - 1)].median)], [x.at(one.bytes), y.at(one.median)]]));
    const taken = [];
    for (const one of this.shown) {
      const color = one.candidate ? report.looks[one.name].color : ink("floor");
      context.strokeStyle = color;
      context.fillStyle = color;
      context.lineWidth = 1.5;
      line(context, x.at(one.bytes), y.at(one.median), x.at(one.bytes), y.at(one.slow));
      context.beginPath();
      context.arc(x.at(one.bytes), y.at(one.median), 4.5, 0, 7);
      context.fill();
      taken.push({ left: x.at(one.bytes) - 5, top: y.at(one.median) - 6, right: x.at(one.bytes) + 5, bottom: y.at(one.median) + 6 });
    }
    context.fillStyle = ink("ink");
    for (const one of this.shown) this.name(context, one, x.at(one.bytes), y.at(one.median), place, taken);
  }

  // Writes a name next to its mark, where it covers no other; a short one if there is little room.
  name(context, one, x, y, place, taken) {
    const words = one.label.length > 24 ? `${one.label.slice(0, 22)}…` : one.label;
    const wide = context.measureText(words).width;
    const spots = [];
    for (const far of [0, 14, 28, 42, 56])
      for (const sign of far ? [1, -1] : [1]) spots.push([x + 8, y + 4 + sign * far], [x - 8 - wide, y + 4 + sign * far]);
    const box = ([left, bottom]) => ({ left, top: bottom - 11, right: left + wide, bottom: bottom + 2 });
    const free = spots.find((spot) => {
      const { left, top, right, bottom } = box(spot);
      const inside = left >= place.left && right <= place.left + place.width + 12 && top >= 0 && bottom <= place.top + place.height;
      return inside && !taken.some((other) => left < other.right && right > other.left && top < other.bottom && bottom > other.top);
    });
    if (!free) return;
    taken.push(box(free));
    if (Math.abs(free[1] - y - 4) > 1) {
      context.strokeStyle = ink("line");
      line(context, x, y, free[0] < x ? free[0] + wide : free[0], free[1] - 4);
    }
    context.fillText(words, ...free);
  }
}

// A scale of values over pixels from `from` on: logarithmic if they differ by more than a factor of
// 8. Its ticks are round; those of bytes are binary.
function scale(values, from, length, isTime) {
  const low = Math.min(...values), high = Math.max(...values);
  const logarithmic = low > 0 && high / low > 8;
  const turn = logarithmic ? Math.log : (value) => value;
  const room = logarithmic ? 0 : (high - low) * 0.06 || high * 0.06 || 1;
  const [first, last] = [turn(low) - room, turn(high) + room];
  const at = (value) => from + ((turn(value) - first) / (last - first || 1)) * length;
  const base = isTime ? 10 : 2;
  const found = [];
  if (logarithmic) {
    const steps = isTime && high / low < 300 ? [1, 2, 5] : [1];
    for (let power = Math.floor(Math.log(low) / Math.log(base)); base ** power <= high; power += 1)
      found.push(...steps.map((step) => step * base ** power).filter((tick) => tick >= low && tick <= high));
  } else {
    let step = base ** Math.floor(Math.log((high - low) / 3 || high || 1) / Math.log(base));
    while ((last - first) / step > 6) step *= 2;
    for (let tick = Math.ceil(first / step) * step; tick <= last; tick += step) if (tick >= 0) found.push(tick);
  }
  return { at, ticks: found };
}
