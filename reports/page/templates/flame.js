// A flame graph of the bytes at the instant, its root on top: by calls, or by modules.
const ROW = 21; // pixels
const NARROWEST = 0.15; // percent of the width
class Flame {
  constructor(root, program) {
    this.root = root;
    this.program = program;
    this.by = root.querySelector("select");
    this.search = root.querySelector("input");
    this.focus = [];
    const { sites } = program.blocks;
    const knows = (name) => sites[name].some(Boolean);
    if (!knows("module")) this.by.querySelector("[value=module]").remove();
    else if (!knows("stack") && !knows("line")) this.by.value = "module";
    root.hidden = !["stack", "line", "operator", "module"].some(knows);
    this.by.addEventListener("change", () => { this.focus = []; this.draw(); });
    this.search.addEventListener("input", () => this.draw());
  }

  // The frames of a site from the root on.
  path(site) {
    const { sites } = this.program.blocks;
    const at = (name) => sites[name][site];
    if (this.by.value === "module") return [...alike(at("module") || "no module").split("."), at("kind") || at("operator")].filter(Boolean);
    const calls = at("stack") ? at("stack").split(";") : [at("line")];
    if (at("derived")) calls.unshift("backward pass of");
    const frames = [...calls, at("operator")].filter(Boolean);
    return frames.length ? frames : [at("kind") || UNKNOWN];
  }

  tree() {
    const { blocks, event } = this.program;
    const top = { name: "all", bytes: 0, blocks: 0, children: new Map() };
    const bytes = new Float64Array(blocks.sites.kind.length), counts = new Float64Array(bytes.length);
    for (const n of blocks.alive(event)) {
      bytes[blocks.site[n]] += blocks.size[n];
      counts[blocks.site[n]] += 1;
    }
    bytes.forEach((size, site) => {
      if (!size) return;
      let node = top;
      for (const name of ["", ...this.path(site)]) {
        if (name) {
          if (!node.children.has(name)) node.children.set(name, { name, bytes: 0, blocks: 0, children: new Map() });
          node = node.children.get(name);
        }
        node.bytes += size;
        node.blocks += counts[site];
      }
    });
    return top;
  }

  draw() {
    if (this.root.hidden) return;
    const top = this.tree();
    let shown = top;
    const above = [top];
    for (const name of this.focus) {
      if (!shown.children.has(name)) break;
      shown = shown.children.get(name);
      above.push(shown);
    }
    this.focus = above.slice(1).map((node) => node.name);
    const wanted = this.search.value.toLowerCase();
    const frames = [];
    let deepest = above.length, matched = 0;
    above.slice(0, -1).forEach((node, depth) => frames.push(this.frame(node, above.slice(1, depth + 1).map(({ name }) => name), 0, 100, depth, top, "above")));
    const add = (node, path, left, depth, inside) => {
      const width = (100 * node.bytes) / Math.max(1, shown.bytes);
      const matches = wanted !== "" && node.name.toLowerCase().includes(wanted);
      if (matches && !inside) matched += node.bytes;
      if (width < NARROWEST && !matches) return;
      deepest = Math.max(deepest, depth + 1);
      frames.push(this.frame(node, path, left, width, depth, top, matches ? "match" : wanted ? "other" : ""));
      let at = left;
      for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
        add(child, [...path, child.name], at, depth + 1, inside || matches);
        at += (100 * child.bytes) / Math.max(1, shown.bytes);
      }
    };
    add(shown, this.focus, 0, above.length - 1, false);
    const place = this.root.querySelector(".frames");
    const focused = place.contains(document.activeElement) ? document.activeElement.dataset.path : null;
    place.style.height = `${deepest * ROW}px`;
    place.replaceChildren(...frames);
    const again = frames.find((frame) => frame.dataset.path === focused);
    if (again) again.focus();
    this.root.querySelector("output").textContent = wanted ? `${units.bytes(matched)} (${units.percent(matched / Math.max(1, top.bytes))}) match.` : "";
  }

  frame(node, path, left, width, depth, top, state) {
    const words = `${node.name}: ${units.bytes(node.bytes)} (${units.percent(node.bytes / Math.max(1, top.bytes))}) in ${units.count(node.blocks)} ${node.blocks === 1 ? "block" : "blocks"}`;
    const frame = make("button", { type: "button", className: `frame ${state}`, title: words, "aria-label": words, text: node.name });
    frame.dataset.path = path.join("\n");
    Object.assign(frame.style, { left: `${left}%`, width: `${width}%`, top: `${depth * ROW}px`, height: `${ROW - 1}px` });
    frame.style.setProperty("--hue", String(18 + (hash(node.name) % 30)));
    frame.addEventListener("click", () => { this.focus = path; this.draw(); });
    return frame;
  }
}

// A small number that differs between most names: the shade of a frame.
function hash(name) {
  let number = 0;
  for (const letter of name) number = (number * 31 + letter.codePointAt(0)) % 9973;
  return number;
}
