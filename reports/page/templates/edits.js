// The page of edits: boxes choose them, and the curve is that of the program with the chosen ones.
class Edits {
  constructor(root, { capacity, card, events, choices }) {
    Object.assign(this, { root, capacity, card, events, choices });
    this.canvas = root.querySelector("canvas");
    this.boxes = [...root.querySelectorAll("input[type=checkbox]")];
    this.top = 1.05 * Math.max(capacity || 0, ...choices.map(({ curve }) => largest(this.total(curve))));
    for (const box of this.boxes) box.addEventListener("change", () => this.choose(box));
    root.querySelector("button[name=none]").addEventListener("click", () => this.clear());
    onChange(() => this.draw());
    this.show(choices[0]);
  }

  total(curve) {
    return Object.values(curve).reduce((all, one) => all.map((bytes, n) => bytes + one[n]), Array(Object.values(curve)[0].length).fill(0));
  }

  found(names) {
    return this.choices.find(({ edits }) => edits.length === names.length && names.every((name) => edits.includes(name)));
  }

  // An edit joins those that are chosen if all together were computed; otherwise it replaces them.
  choose(box) {
    const names = this.boxes.filter((one) => one.checked).map((one) => one.value);
    const choice = this.found(names) || this.found(box.checked ? [box.value] : []) || this.choices[0];
    for (const one of this.boxes) one.checked = choice.edits.includes(one.value);
    this.show(choice);
  }

  clear() {
    for (const box of this.boxes) box.checked = false;
    this.show(this.choices[0]);
  }

  show(choice) {
    this.choice = choice;
    for (const box of this.boxes) {
      const joins = box.checked || this.found([...choice.edits, box.value]);
      box.closest("tr").classList.toggle("apart", choice.edits.length > 0 && !joins);
    }
    this.root.querySelector(".readout").textContent = choice.words;
    fillLegend(this.root, this.kinds().map(([name, color]) => [color, name || "of unknown kind"]));
    this.draw();
  }

  // The kinds of the chosen curve with their colors, from the bottom of the stack to its top.
  kinds() {
    const place = (name) => (KINDS.indexOf(name) + 1 || KINDS.length + 1) - 1;
    const names = Object.keys(this.choice.curve).filter((name) => this.choice.curve[name].some(Boolean));
    return names.sort((a, b) => place(a) - place(b)).map((name) => [name, KINDS.includes(name) ? PALETTE[place(name)] : REST]);
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const place = { left: 70, top: 12, width: width - 76, height: width < 500 ? 160 : 240 };
    const context = sized(this.canvas, width, place.height + 40);
    const y = (bytes) => place.top + place.height * (1 - bytes / this.top);
    paintGrid(context, place, this.top, [0, this.events]);
    let below = null;
    for (const [name, color] of this.kinds()) {
      const bytes = this.choice.curve[name], column = place.width / bytes.length;
      const above = bytes.map((more, n) => more + (below ? below[n] : 0));
      context.fillStyle = color;
      above.forEach((high, n) => {
        const low = below ? below[n] : 0;
        const from = Math.round(place.left + n * column), to = Math.round(place.left + (n + 1) * column);
        if (high > low) context.fillRect(from, y(high), to - from, y(low) - y(high));
      });
      below = above;
    }
    const before = this.total(this.choices[0].curve), column = place.width / before.length;
    context.strokeStyle = ink("ink");
    context.lineWidth = 1.5;
    stroke(context, before.flatMap((bytes, n) => [[place.left + n * column, y(bytes)], [place.left + (n + 1) * column, y(bytes)]]));
    if (this.capacity === null) return;
    paintLimit(context, place, y(this.capacity));
    paintWords(context, `limit of ${this.card}: ${units.bytes(this.capacity)}`, place.left + 8, y(this.capacity) + 16);
  }
}

function setUpEdits(given) {
  const root = document.getElementById("edits");
  if (root && given) report.edits = new Edits(root, given);
}
