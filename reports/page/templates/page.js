// The interactive parts of the page: look, sorting, data and charts.
const LOOKS = ["auto", "light", "dark"];

function setUpLook() {
  const button = document.getElementById("look");
  const set = (look) => {
    document.documentElement.dataset.look = look;
    button.textContent = `Look: ${look}`;
    dispatchEvent(new Event("look"));
  };
  button.addEventListener("click", () => {
    const next = LOOKS[(LOOKS.indexOf(document.documentElement.dataset.look) + 1) % LOOKS.length];
    set(next);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => dispatchEvent(new Event("look")));
  set("auto");
}

// The parts of a report are tabs; a link to something in a tab opens it.
function setUpTabs() {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const open = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
      document.getElementById(tab.getAttribute("aria-controls")).hidden = tab !== chosen;
    }
    dispatchEvent(new Event("look")); // charts that were not visible are drawn
  };
  tabs.forEach((tab, n) => {
    tab.addEventListener("click", () => open(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(n + step + tabs.length) % tabs.length];
      open(next);
      next.focus();
    });
  });
  const follow = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const panel = target && target.closest("[role=tabpanel]");
    const tab = panel && tabs.find((one) => one.getAttribute("aria-controls") === panel.id);
    if (!tab) return;
    open(tab);
    target.scrollIntoView();
  };
  addEventListener("hashchange", follow);
  if (tabs.length) open(tabs[0]);
  follow();
  report.open = (name) => open(tabs.find((tab) => tab.getAttribute("aria-controls") === name));
}

// Charts are created when they are about to become visible.
const CHARTS = [["program", Program], ["trade", Trade], ["explorer", Explorer], ["map", AddressMap]];

function explore(about) {
  for (const [name, Chart] of CHARTS) {
    const root = document.getElementById(`${about.id}-${name}`);
    if (root && root.clientWidth && !about[name]) about[name] = new Chart(root, about);
  }
}

function setUpExplorers() {
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries)
      if (entry.isIntersecting) explore(report.cases.find((about) => entry.target.id.split("-program")[0] === about.id));
  }, { rootMargin: "800px" });
  for (const about of report.cases)
    for (const id of [about.id, `${about.id}-program`]) {
      const section = document.getElementById(id);
      if (section) near.observe(section);
    }
  for (const root of document.querySelectorAll("[data-lines]")) lineCharts(root);
  for (const button of document.querySelectorAll("button.show-failure"))
    button.addEventListener("click", () => {
      const about = report.cases.find(({ id }) => id === button.dataset.case);
      explore(about);
      about.map.allocator.value = button.dataset.allocator;
      about.map.load();
      about.map.goTo(about.map.failure);
      about.map.root.scrollIntoView();
      about.map.canvas.focus({ preventScroll: true });
    });
}

document.documentElement.classList.add("runs");
setUpSorting();
setUpLook();
report.ready = unpack().then(() => {
  setUpData();
  setUpTabs();
  setUpExplorers();
}).catch((error) => {
  document.documentElement.classList.remove("runs");
  const said = document.getElementById("trouble");
  said.hidden = false;
  said.textContent = `The interactive charts need a newer browser (${error.message}); the rest of the page works.`;
});
