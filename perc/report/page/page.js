"use strict";
const root = document.documentElement;

document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});

function sortBy(header) {
  const row = header.parentElement;
  const column = [...row.children].indexOf(header);
  const down = header.getAttribute("aria-sort") === "ascending";
  const number = header.classList.contains("number");
  for (const other of row.children) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = header.closest("table").tBodies[0];
  const value = (line) => line.children[column].dataset.value;
  const order = (a, b) => {
    const [one, two] = [value(a), value(b)];
    // What has no value stays below, whichever way one sorts.
    if (one === "" || two === "") return (one === "") - (two === "");
    const way = number ? Number(one) - Number(two) : one.localeCompare(two);
    return down ? -way : way;
  };
  body.append(...[...body.rows].sort(order));
}

for (const header of document.querySelectorAll("th")) {
  header.firstElementChild.addEventListener("click", () => sortBy(header));
}
