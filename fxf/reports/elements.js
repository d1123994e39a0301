"use strict";
// Elements and tables for all pages. Texts become text nodes, never markup.

function element(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child !== null));
  return node;
}

// Formats a number with four digits, and any other value as text.
function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return value.toLocaleString("en");
  const size = Math.abs(value);
  return size >= 1e5 || (size > 0 && size < 1e-4) ? value.toExponential(2) : String(Number(value.toPrecision(4)));
}

function short(text, most) {
  const characters = Array.from(text);
  return characters.length > most ? characters.slice(0, most - 1).join("") + "…" : text;
}

function color(i) {
  return `var(--c${i % 6})`;
}

function section(title, ...children) {
  return element("section", {}, element("h2", {}, title), ...children);
}

// Rows are arrays of cells; a cell is a value or {value, style, link}. Numbers are right-aligned.
function table(header, rows) {
  const cell = content => {
    const { value, style = "", link = null } = content !== null && typeof content === "object" ? content : { value: content };
    const kind = typeof value === "number" ? "number " : "";
    return element("td", { class: kind + style }, link ? element("a", { href: link }, shown(value)) : shown(value));
  };
  const lines = rows.map(row => element("tr", row.style ? { class: row.style } : {}, ...row.map(cell)));
  const head = header.map(name => element("th", {}, name));
  return element("div", { class: "scroll" },
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines)));
}

const isMissing = value => value === undefined || value === null || value === "no value";

function ordered(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

// A table that sorts by the column whose name is pressed; `sorted`, {column, down}, holds the choice.
// `columns` are [name, title, value of a row, cell of a row]; by default the cell is the value.
function sortable(columns, rows, sorted, redraw) {
  const chosen = columns.find(([name]) => name === sorted.column);
  if (chosen) {
    // Rows without a value come last in both directions.
    const [there, missing] = [false, true].map(without => rows.filter(row => isMissing(chosen[2](row)) === without));
    rows = [...there.sort((a, b) => (sorted.down ? -1 : 1) * ordered(chosen[2](a), chosen[2](b))), ...missing];
  }
  const press = name => () => {
    sorted.down = sorted.column === name && !sorted.down;
    sorted.column = name;
    redraw();
  };
  const arrow = name => sorted.column === name ? (sorted.down ? " ▼" : " ▲") : "";
  const head = columns.map(([name, title]) => element("th", {
    "aria-sort": sorted.column === name ? (sorted.down ? "descending" : "ascending") : "none",
  }, element("button", { onclick: press(name) }, title + arrow(name))));
  const sortedTable = table([], rows.map(row => columns.map(([, , value, cell = value]) => cell(row))));
  sortedTable.classList.add("named");
  sortedTable.querySelector("thead tr").append(...head);
  return sortedTable;
}

// Replaces the children of a holder; details that the reader has opened or closed stay so.
function replace(holder, ...nodes) {
  const were = [...holder.querySelectorAll("details")].map(part => part.open);
  holder.replaceChildren(...nodes);
  const now = [...holder.querySelectorAll("details")];
  if (now.length === were.length) now.forEach((part, i) => { part.open = were[i]; });
}

// A search field, and a predicate: whether a text has all words of the field.
function wordFilter(redraw) {
  const field = element("input", { type: "search", placeholder: "filter: words of a row", "aria-label": "filter", oninput: redraw });
  return [field, text => field.value.toLowerCase().split(/\s+/).every(word => text.toLowerCase().includes(word))];
}
