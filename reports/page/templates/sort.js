// Sort a table by a column: numbers ascending first, missing numbers always last.
function setUpSorting() {
  for (const button of document.querySelectorAll("table.sortable thead button")) {
    button.addEventListener("click", () => {
      const header = button.closest("th");
      const ascending = header.getAttribute("aria-sort") !== "ascending";
      for (const other of header.parentNode.children) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      const direction = ascending ? 1 : -1;
      const key = (row) => {
        const cell = row.children[header.cellIndex];
        if (cell.tagName === "TH") return cell.querySelector(".name").textContent;
        return "value" in cell.dataset ? Number(cell.dataset.value) : null;
      };
      const body = header.closest("table").tBodies[0];
      const rows = [...body.rows].sort((left, right) => {
        const a = key(left), b = key(right);
        if (a === null || b === null) return (a === null) - (b === null);
        return direction * (typeof a === "string" ? a.localeCompare(b) : a - b);
      });
      body.append(...rows);
    });
  }
}
