"use strict";
// The page that compares runs, from the data that page.py embeds.

const data = JSON.parse(document.getElementById("data").textContent);
const OVERLAID = 6; // maximum number of lines in one chart
const BEHIND = 24; // maximum number of lines in its background

const notes = Object.fromEntries(data.figures.map(figure => [figure.name, figure]));
const sorted = { column: null, down: false };
const [filter, hasWords] = wordFilter(draw);
const [runTable, meanTable, charts] = [element("div"), element("div"), element("div")];

function visible() {
  const text = run => [run.name, run.state, run.said, run.task, ...data.keys.map(key => `${key}=${run.keys[key]}`)].join(" ");
  return data.runs.filter(run => hasWords(text(run)));
}

function title(name) {
  const { better } = notes[name];
  return name + (better ? (better === "lower" ? " ↓" : " ↑") : "");
}

function drawRuns(runs) {
  const all = [["name", "run", run => run.name, run => ({ value: run.name, link: run.link })]];
  for (const key of data.keys) all.push([`key ${key}`, key, run => run.keys[key]]);
  all.push(["state", "status", run => run.said ? `${run.state}: ${run.said}` : run.state]);
  for (const { name } of data.figures) all.push([name, title(name), run => run.figures[name]]);
  const kinds = [...new Set(data.runs.map(run => run.model))];  // a table for each model, with its own columns
  runTable.replaceChildren(...kinds.flatMap(kind => {
    const rows = runs.filter(run => run.model === kind);
    const columns = all.filter(([name, , value]) => name === "name" || rows.some(row => value(row) !== undefined));
    return [kinds.length > 1 ? element("h3", {}, kind) : "", sortable(columns, rows, sorted, draw)];
  }));
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
  const few = groups.length <= OVERLAID;  // then a group has the same color in all charts
  const apart = data.charts.flatMap(chart => {
    const lines = groups.filter(group => chart.lines[group.number])
      .map((group, i) => ({ name: group.short, color: color(few ? groups.indexOf(group) : i), axes: group.axes, ...chart.lines[group.number] }));
    if (!lines.length) return [];
    if (lines.length <= OVERLAID) {
      overlaid.append(lineChart({ ...chart, lines, named: groups.length > 1 }));
      return [];
    }
    // Many lines would hide each other: each gets its own chart, with the others in the background, all on one scale.
    const every = Math.ceil(lines.length / BEHIND);
    const behind = lines.filter((_, i) => i % every === 0).map(line => ({ points: line.points, axes: line.axes, color: "var(--faint)", faint: true }));
    const better = chart.better ? `, ${chart.better} is better` : "";
    const holder = element("div", { class: "charts" });
    const part = element("details", { ontoggle: () => part.fill(), ...(chart.open ? { open: "" } : {}) },
      element("summary", {}, `${chart.title}${better}: ${lines.length} charts on one scale`), holder);
    part.fill = () => {  // closed charts are not drawn
      if (!part.open || holder.hasChildNodes()) return;
      const span = spanOf(lines);
      holder.append(...lines.map(line => lineChart({ title: line.name, unit: chart.unit, lines: [...behind, { ...line, color: color(0) }], span })));
    };
    return [part];
  });
  replace(charts, overlaid, ...apart);
  apart.forEach(part => part.fill());
}

function visibleGroups() {
  const numbers = new Set(visible().map(run => run.group));
  return data.groups.filter(group => numbers.has(group.number));
}

function draw() {
  drawRuns(visible());
  drawMeans(visibleGroups());
  drawCharts(visibleGroups());
}

document.body.append(
  element("h1", {}, data.title),
  element("p", { class: "faint" }, data.summary),
  ...data.said.map(line => element("p", {}, line)),
  section("Runs", element("p", {}, filter), element("p", { class: "faint" },
    "Press a column's name to sort. ↓ lower is better, ↑ higher is better. A mean is green and bold if its seeds tell it apart from all others."), runTable, meanTable),
  section("Curves", element("p", { class: "faint" }, "Runs that differ only in the seed are one line, the mean of those that got so far, in a band from the lowest to the highest. Drag over a chart to see a part, double-click for the whole."), controls(), charts));
view.redraw = () => drawCharts(visibleGroups());
draw();
