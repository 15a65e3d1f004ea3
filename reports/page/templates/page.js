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

// Charts are created when they are about to become visible.
function explore(about) {
  if (about.explored) return;
  about.explored = true;
  const time = document.getElementById(`${about.id}-explorer`);
  if (time) about.explorer = new Explorer(time, about);
  const map = document.getElementById(`${about.id}-map`);
  if (map) about.map = new AddressMap(map, about);
}

function setUpExplorers() {
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries)
      if (entry.isIntersecting) explore(report.cases.find((about) => about.id === entry.target.id));
  }, { rootMargin: "800px" });
  for (const about of report.cases) {
    const section = document.getElementById(about.id);
    if (section) near.observe(section);
  }
  for (const button of document.querySelectorAll("button.show-failure"))
    button.addEventListener("click", () => {
      const about = report.cases.find(({ id }) => id === button.dataset.case);
      explore(about);
      about.map.allocator.value = button.dataset.allocator;
      about.map.load();
      about.map.goTo(about.map.failure.event[0]);
      about.map.root.scrollIntoView();
      about.map.canvas.focus({ preventScroll: true });
    });
}

document.documentElement.classList.add("runs");
setUpSorting();
setUpLook();
report.ready = unpack().then(() => {
  setUpData();
  setUpExplorers();
}).catch((error) => {
  document.documentElement.classList.remove("runs");
  const said = document.getElementById("trouble");
  said.hidden = false;
  said.textContent = `The interactive charts need a newer browser (${error.message}); the rest of the page works.`;
});
