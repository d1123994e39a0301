"use strict";
// The page that compares runs, from the data that page.py embeds.

const data = JSON.parse(document.getElementById("data").textContent);
const OVERLAID = 6; // the most lines that one chart holds

const notes = Object.fromEntries(data.figures.map(figure => [figure.name, figure]));
const sorted = { column: null, down: false };
const filter = element("input", { type: "search", placeholder: "filter: words of a row", "aria-label": "filter", oninput: draw });
const [runTable, meanTable, charts] = [element("div"), element("div"), element("div")];

function visible() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const text = run => [run.name, run.state, run.said, run.task, ...data.keys.map(key => `${key}=${run.keys[key]}`)].join(" ").toLowerCase();
  return data.runs.filter(run => words.every(word => text(run).includes(word)));
}

const isMissing = value => value === undefined || value === null || value === "no value";

function ordered(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

// A table whose columns sort when their names are pressed. `columns` are [name, title, value of a row].
function sortable(columns, rows, redraw) {
  const chosen = columns.find(([name]) => name === sorted.column);
  if (chosen) {
    // Rows without a value stand last in both directions.
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
  const found = table([], rows.map(row => columns.map(([, , value]) => value(row))));
  found.querySelector("thead tr").append(...head);
  return found;
}

function title(name) {
  const { better } = notes[name];
  return name + (better ? (better === "lower" ? " ↓" : " ↑") : "");
}

function drawRuns(runs) {
  const columns = [];
  for (const key of data.keys) columns.push([`key ${key}`, key, run => run.keys[key]]);
  columns.push(["state", "status", run => run.said ? `${run.state}: ${run.said}` : run.state]);
  for (const { name } of data.figures) columns.push([name, title(name), run => run.figures[name]]);
  columns.splice(data.keys.length ? columns.length : 0, 0, ["name", "run", run => run.name]);
  runTable.replaceChildren(sortable(columns, runs, draw));
}

function drawMeans(groups) {
  const several = groups.filter(group => group.n + group.diverged > 1);
  if (!several.length) { meanTable.replaceChildren(); return; }
  const names = data.figures.map(figure => figure.name).filter(name => several.some(group => group.means[name]));
  const header = ["runs that differ only in seed", "seeds", ...names.map(title)];
  const rows = several.map(group => [group.label, group.n, ...names.map(name =>
    ({ value: group.means[name], style: group.best.includes(name) ? "best" : "" }))]);
  meanTable.replaceChildren(element("h3", {}, "Mean ± standard deviation over seeds"), table(header, rows));
}

function drawCharts(groups) {
  const overlaid = element("div", { class: "charts" });
  const few = groups.length <= OVERLAID;  // then each has one color in all charts
  const apart = data.charts.flatMap(chart => {
    const lines = groups.filter(group => chart.lines[group.number])
      .map((group, i) => ({ name: group.label, color: color(few ? groups.indexOf(group) : i), ...chart.lines[group.number] }));
    if (!lines.length) return [];
    if (lines.length <= OVERLAID) {
      overlaid.append(lineChart({ ...chart, lines, named: groups.length > 1 }));
      return [];
    }
    // Many lines would cover each other: each has a chart of its own, with the others behind it, all on one scale.
    const behind = lines.map(line => ({ points: line.points, color: "var(--faint)", faint: true }));
    const each = lines.map(line => lineChart({ title: line.name, unit: chart.unit, lines: [...behind, { ...line, color: color(0) }], range: lines }));
    const better = chart.better ? `, ${chart.better} is better` : "";
    return [element("details", chart.open ? { open: "" } : {}, element("summary", {}, `${chart.title}${better}: ${lines.length} charts on one scale`),
      element("div", { class: "charts" }, ...each))];
  });
  charts.replaceChildren(overlaid, ...apart);
}

function draw() {
  const runs = visible(), numbers = new Set(runs.map(run => run.group));
  const groups = data.groups.filter(group => numbers.has(group.number));
  drawRuns(runs);
  drawMeans(groups);
  drawCharts(groups);
}

document.body.append(
  element("h1", {}, data.title),
  element("p", { class: "faint" }, data.summary),
  ...data.said.map(line => element("p", {}, line)),
  section("Runs", element("p", {}, filter), element("p", { class: "faint" },
    "Press a column's name to sort. ↓ lower is better, ↑ higher is better. A mean is green and bold if its seeds tell it apart from all others."), runTable, meanTable),
  section("Curves", element("p", { class: "faint" }, "Runs that differ only in the seed are one line, their mean, in a band from the lowest to the highest."), charts));
draw();
