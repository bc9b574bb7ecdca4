"use strict";
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, at) => {
    const cell = row.cells[at];
    const text = cell.dataset.n ?? cell.textContent.trim();
    const number = Number(text.replace(/[,%<> ]/g, ""));
    return Number.isNaN(number) ? text : number;
  };
  heads.forEach((head, at) => {
    head.tabIndex = 0;
    const sort = () => {
      const falls = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const [x, y] = [value(a, at), value(b, at)];
        return typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      });
      table.tBodies[0].append(...(falls ? rows.reverse() : rows));
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter") sort();
    });
  });
}
