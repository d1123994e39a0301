"use strict";
// The page of a trial, from the data that page.py embeds: the verdict, every pair as a dot, the rates, the attempts.

const data = JSON.parse(document.getElementById("data").textContent);

// Draws the difference of each pair over the pair's number; a pair with a failed run lies on the lower edge.
function dots({ metric, better, effect, low, high, dots }) {
  const [width, height, left, right, top, bottom] = [680, 260, 60, 672, 10, 226];
  const known = dots.map(([, , , , difference]) => difference).filter(value => typeof value === "number");
  const ends = [effect, low, high].filter(value => value !== null);
  const x = scale([1, Math.max(2, dots.length)], left + 8, right - 8);
  const y = scale([0, ...known, ...ends], bottom - 12, top);
  const title = `${metric}: other − first, pair by pair`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  if (low !== null) {
    drawing.append(svg("rect", { x: left, width: right - left, y: y.map(high), height: Math.max(1, y.map(low) - y.map(high)), fill: color(0), opacity: 0.15 }));
  }
  for (const tick of y.ticks) {
    drawing.append(svg("line", { class: "rule", x1: left, x2: right, y1: y.map(tick), y2: y.map(tick) }));
    drawing.append(svg("text", { x: left - 4, y: y.map(tick) + 3, "text-anchor": "end" }, tickText(tick)));
  }
  drawing.append(svg("line", { x1: left, x2: right, y1: y.map(0), y2: y.map(0), stroke: "currentColor" }));
  if (effect !== null) drawing.append(svg("line", { x1: left, x2: right, y1: y.map(effect), y2: y.map(effect), stroke: color(0) }));
  dots.forEach(([firstSeed, otherSeed, first, other, difference], i) => {
    const failed = typeof difference !== "number";
    const seeds = firstSeed === otherSeed ? firstSeed : `${firstSeed} and ${otherSeed}`;
    const text = `seed ${seeds}: ${shown(first)} and ${shown(other)}${failed ? ", failed" : ""}`;
    drawing.append(svg("circle", { cx: x.map(i + 1), cy: failed ? bottom : y.map(difference), r: 4, fill: color(failed ? 1 : 0) },
      svg("title", {}, text)));
  });
  drawing.append(svg("text", { x: left, y: height - 5 }, "pairs in order; failed pairs are on the lower edge"));
  return element("figure", {}, caption(title, "", better), drawing);
}

function rates({ settled, metric }) {
  const rows = Object.entries(settled).flatMap(([arm, { tried, changes }]) => tried.map(([rate, figure]) =>
    [arm, { value: rate, style: rate === changes["optimizer.learning_rate"] ? "best" : "" }, figure]));
  return rows.length ? section("Rates tried", table(["config", "learning rate", `mean ${metric}`], rows)) : "";
}

function trial(verdict) {
  return element("div", {},
    verdict.name ? element("h2", {}, verdict.name) : "",
    ...verdict.lines.map(line => element("p", {}, line)),
    verdict.dots.length ? dots(verdict) : "",
    rates(verdict),
    section("Attempts", table(Object.keys(verdict.attempts[0]), verdict.attempts.map(attempt => Object.values(attempt).map(String)))),
    section("Pairs", table(["seed of first", "seed of other", "first", "other", "difference", "seconds"], verdict.dots)));
}

function trend(trials) {
  const rows = trials.map(({ name, effect, low, high, headline }) => [name, effect, low, high, headline]);
  return section("Effect by size", table(["size", "effect", "low", "high", "verdict"], rows));
}

document.body.append(
  element("h1", {}, data.title),
  data.trials.length > 1 ? trend(data.trials) : "",
  ...data.trials.map(trial));
