"use strict";
// The page of a run, from the data that page.py embeds, and from new data that live.js passes to `update`.

let run = JSON.parse(document.getElementById("data").textContent);
let sampledAt = null;  // the step whose samples the reader chose; null: the newest

function head() {
  const style = { finished: "good", failed: "bad", diverged: "bad" }[run.state] || "faint";
  return element("header", {},
    run.up ? element("a", { href: run.up }, "all runs") : null,
    element("h1", {}, run.title),
    element("p", {}, element("span", { class: `state ${style}` }, run.state), run.said));
}

function headline() {
  const tiles = run.headline.map(({ label, unit, better, value, expected }) => element("div", { class: "tile" },
    element("b", {}, shown(value)),
    element("span", {}, [label, unit].filter(Boolean).join(", ")),
    expected === null ? null : element("span", {}, `expected ${shown(expected)}`),
    better ? element("span", {}, `${better} is better`) : null));
  const note = run.expectedOf ? element("p", { class: "faint" }, run.expectedOf) : null;
  return section("Figures", element("div", { class: "tiles" }, ...tiles), note);
}

function charts() {
  if (!run.charts.length) return element("p", {}, "Nothing is logged yet.");
  const lines = chart => chart.lines.map((line, i) => ({ ...line, axes: run.axes, color: color(i) }));
  return element("div", { class: "charts" }, ...run.charts.map(chart => lineChart({ ...chart, lines: lines(chart) })));
}

// The samples of one step, wrong answers first; a menu chooses the step.
function samples() {
  if (!run.samples.length) return null;
  const holder = element("div");
  const show = ({ rows }) => {
    const marked = rows.map(([prompt, expected, answer, cutOff]) =>
      ({ prompt, expected, answer: answer + (cutOff ? " (cut off)" : ""), wrong: expected !== null && expected !== answer }));
    const order = [...marked.filter(row => row.wrong), ...marked.filter(row => !row.wrong)];
    if (order.every(row => row.expected === null)) {
      holder.replaceChildren(...order.map(row => element("pre", {}, row.prompt + row.answer)));
      return;
    }
    const style = wrong => run.marked ? (wrong ? "preserve bad" : "preserve good") : "preserve";
    replace(holder,
      run.marked ? element("p", {}, `${marked.filter(row => row.wrong).length} of these ${rows.length} are wrong.`) : "",
      table(["prompt", "should be", "is"], order.map(row => [
        { value: row.prompt, style: "preserve" },
        { value: row.expected, style: "preserve" },
        { value: row.answer, style: style(row.wrong) },
      ])));
  };
  const option = (found, i) => element("option", { value: i }, `${found.test ? "test, " : ""}step ${shown(found.step)}`);
  const newest = run.samples.length - 1;
  const choose = () => {
    sampledAt = Number(menu.value) === newest ? null : run.samples[menu.value].step;
    show(run.samples[menu.value]);
  };
  const menu = element("select", { "aria-label": "step", onchange: choose }, ...run.samples.map(option));
  const chosen = run.samples.findIndex(found => found.step === sampledAt);
  menu.value = chosen < 0 ? newest : chosen;
  show(run.samples[menu.value]);
  return section("Samples", element("p", {}, menu), holder);
}

function inside() {
  if (!run.inside) {
    return section("Inside the model", element("p", { class: "faint" },
      "Attention, positions and the logit lens appear here when the run has ended, or after `fxf report RUN`."));
  }
  const { step, examples } = run.inside;
  return section("Inside the model", element("p", { class: "faint" }, `At step ${shown(step)}, what the model reads and answers.`),
    ...examples.map(insideExample));
}

function weights() {
  if (!run.inside || !run.inside.weights.length) return null;
  return section("Parameters", element("details", {}, element("summary", {}, `${shown(run.inside.parameters)} in all`),
    table(["weight", "shape", "axes", "count"], run.inside.weights)));
}

function made() {
  const changed = run.config.filter(([, , overridden]) => overridden).length;
  const rows = run.config.map(([key, value, overridden]) => {
    const row = [key, value === "" ? "(empty)" : String(value), overridden ? "overridden" : ""];
    return Object.assign(row, { style: overridden ? "changed" : "" });
  });
  rows.sort((a, b) => (b.style !== "") - (a.style !== ""));
  return section("What it was made from",
    element("p", {}, "The command that repeats it:"), element("pre", {}, run.command),
    element("details", {}, element("summary", {}, `Config: ${rows.length} keys, ${changed} overridden`), table(["key", "value", ""], rows)),
    element("details", {}, element("summary", {}, "Versions, commit, digests and machine"), table(["", ""], run.about)),
    element("details", {}, element("summary", {}, "Every figure of the result"), table(["figure", "value"], run.result)));
}

// The parts of the page, and the data that each shows. A part is drawn again when its data change.
const PARTS = [
  [head, "title", "state", "said"], [headline, "headline", "expectedOf"], [charts, "charts", "axes"],
  [samples, "samples", "marked"], [inside, "inside"], [weights, "inside"], [made, "config", "command", "about", "result"],
].map(([draw, ...names]) => ({ draw, names, holder: element("div"), drawn: "" }));

function update(newer) {
  run = newer;
  for (const part of PARTS) {
    const shownData = JSON.stringify(part.names.map(name => run[name]));
    if (shownData === part.drawn) continue;
    part.drawn = shownData;
    replace(part.holder, part.draw() || "");
  }
}

view.redraw = () => replace(PARTS[2].holder, charts());
const [above, tiles, curves, ...others] = PARTS.map(part => part.holder);
document.body.append(above, tiles, section("Curves", element("p", { class: "faint" },
  "Point at a curve to read its values. Drag to see a part in all charts, double-click for the whole."), controls(), curves), ...others);
update(run);
