"use strict";
// Sorts tables by a click on a heading, opens what is folded for print, saves the data.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const keyOf = (row, n) => {
    const text = row.cells[n].dataset.sort ?? row.cells[n].textContent;
    const value = Number(text);
    return Number.isNaN(value) ? text : value;
  };
  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
  heads.forEach((head, n) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") !== "descending";
    heads.forEach((h) => h.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].filter((row) => !row.classList.contains("noted"));
    const notes = [...body.rows].filter((row) => row.classList.contains("noted"));
    rows.sort((a, b) => (down ? -1 : 1) * compare(keyOf(a, n), keyOf(b, n)));
    body.append(...rows, ...notes);
  }));
}

const closed = [];
window.addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details.rest:not([open])")) {
    part.open = true;
    closed.push(part);
  }
});
window.addEventListener("afterprint", () => closed.splice(0).forEach((part) => { part.open = false; }));

async function dataOfPage() {
  const element = document.getElementById("data");
  if (element.type === "application/json") return element.textContent;
  const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const save = document.getElementById("save");
save.hidden = false;
save.addEventListener("click", async () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([await dataOfPage()], { type: "application/json" }));
  link.download = "report.json";
  link.click();
  URL.revokeObjectURL(link.href);
});
