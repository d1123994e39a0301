"use strict";
// The page of a seed, from the data that page.py embeds: its rows, then parts, each of a kind.

const seed = JSON.parse(document.getElementById("data").textContent);

function verdicts() {
  const wrong = seed.rows.filter(row => row[0] !== "holds").length;
  const rows = [...seed.rows].sort((a, b) => (a[0] === "holds") - (b[0] === "holds"));
  const style = (value, i) => ({ 0: value === "holds" ? "good" : "bad", 4: "number" })[i] || "words";
  const cells = row => row.map((value, i) => ({ value, style: style(value, i) }));
  return section("What the seed says, and what fxf gives",
    element("p", {}, element("span", { class: `state ${wrong ? "bad" : "good"}` }, wrong ? `${wrong} of these ${wrong > 1 ? "do" : "does"} not hold` : "all hold"),
      `${seed.rows.length} rows`),
    table(seed.header, rows.map(cells)));
}

const KINDS = {
  charts: ({ charts }) => element("div", { class: "charts" }, ...charts.map(chart =>
    lineChart({ ...chart, lines: chart.lines.map((line, i) => ({ ...line, color: color(i) })) }))),
  examples: ({ examples }) => element("div", {}, ...examples.map(insideExample)),
  maps: ({ maps }) => element("div", { class: "maps" }, ...maps.map(heatMap)),
  table: ({ header, rows }) => table(header, rows.map(row => row.map(value => ({ value, style: "preserve" })))),
  text: ({ content }) => element("div", { class: "scroll" }, element("pre", { style: "white-space: pre; width: max-content; min-width: 100%" }, content)),
};

const links = seed.links.map(([name, file]) => element("a", { href: file, style: "margin-right: 16px" }, name));
document.body.append(
  element("header", {}, element("h1", {}, seed.title), element("p", {}, seed.about), element("p", {}, ...links)),
  verdicts(),
  ...seed.parts.map(part => section(part.title || "", ...(part.text ? [element("p", { class: "faint" }, part.text)] : []),
    KINDS[part.kind](part))));
