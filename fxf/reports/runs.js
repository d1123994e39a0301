"use strict";
// The page of all runs in a folder, from the data that page.py embeds, and from new data that live.js passes to `update`.

let data = JSON.parse(document.getElementById("data").textContent);
const sorted = { column: null, down: false };
const [filter, hasWords] = wordFilter(draw);
const [counted, runs] = [element("p", { class: "faint" }), element("div")];
const STYLES = { finished: "good", failed: "bad", diverged: "bad" };

// Formats seconds as hours, minutes and seconds.
function duration(seconds) {
  if (seconds === null) return null;
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours} h ${minutes} min` : minutes ? `${minutes} min ${Math.floor(seconds % 60)} s` : `${seconds.toPrecision(3)} s`;
}

const COLUMNS = [
  ["name", "run", run => run.name, run => ({ value: run.name, link: run.link })],
  ["state", "state", run => run.state, run => ({ value: run.state, style: STYLES[run.state] || "" })],
  ["step", "step", run => run.step],
  ["steps", "of", run => run.steps],
  ["figure", "main metric", run => run.figure],
  ["value", "value", run => run.value, run => ({ value: run.value, style: "number" })],
  ["seconds", "training time", run => run.seconds, run => ({ value: duration(run.seconds), style: "number" })],
  ["changed", "newest record", run => run.changed, run => ({ value: run.changed && new Date(1000 * run.changed).toLocaleString("sv"), style: "number" })],
  ["task", "task", run => run.task],
  ["model", "model", run => run.model],
  ["why", "why it ended", run => run.why, run => ({ value: short(run.why, 100), style: "line" })],
];

function draw() {
  const rows = data.runs.filter(run => hasWords([run.name, run.task, run.model, run.state, run.figure, run.why].join(" ")));
  const columns = COLUMNS.filter(([name]) => name !== "why" || data.runs.some(run => run.why));
  counted.textContent = `${rows.length} of ${data.runs.length} runs`;
  runs.replaceChildren(sortable(columns, rows, sorted, draw));
}

function update(newer) {
  data = newer;
  draw();
}

document.body.append(element("h1", {}, data.title), element("p", {}, filter), counted, runs);
draw();
