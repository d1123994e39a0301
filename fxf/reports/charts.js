"use strict";
// Line charts, and their shared settings.

// The reader's settings for all charts of a page. They stay when new data arrive. `range` is the visible range of x.
const view = { x: "step", height: "auto", smooth: "0", range: null, dragging: false, redraw: () => {} };

// The controls above the charts: the quantity on x, the scale of y, smoothing, and a button that resets the zoom.
function controls() {
  const back = element("button", { onclick: () => choose({ range: null }), disabled: "" }, "whole range");
  function choose(changes) {
    Object.assign(view, changes);
    back.disabled = !view.range;
    view.redraw();
  }
  view.choose = choose;
  const menu = (label, name, options) => {
    const select = element("select", { "aria-label": label, onchange: () => choose({ [name]: select.value, range: name === "x" ? null : view.range }) },
      ...Object.entries(options).map(([value, text]) => element("option", { value }, text)));
    return element("label", {}, label, select);
  };
  const slider = element("input", { type: "range", min: "0", max: "0.98", step: "0.02", value: "0",
    oninput: () => choose({ smooth: slider.value }) });
  return element("p", { class: "controls" }, menu("x", "x", { step: "steps", tokens: "tokens", seconds: "training time" }),
    menu("height", "height", { auto: "automatic", linear: "linear", log: "logarithmic" }),
    element("label", {}, "smoothing", slider), back);
}

// A scale maps values to pixels and has round ticks. It is logarithmic if `height` is "log", or "auto" and the values
// span two decades, but linear if a value is not positive.
function scale(values, from, to, height = "linear") {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) [low, high] = [Math.min(low, value), Math.max(high, value)];  // too many for arguments
  const log = low > 0 && high > low && (height === "log" || (height === "auto" && high >= 100 * low));
  if (low === high) [low, high] = [Math.min(low, 0), Math.max(high, 0) || 1];
  const place = log ? Math.log10 : value => value;
  const map = value => from + (place(value) - place(low)) / (place(high) - place(low)) * (to - from);
  const ticks = [];
  if (log && high >= 10 * low) {
    const every = Math.ceil((Math.log10(high) - Math.log10(low)) / 5);
    for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power += every) ticks.push(10 ** power);
  } else {
    const rough = (high - low) / 4, base = 10 ** Math.floor(Math.log10(rough));
    const step = [10, 5, 2, 1].map(times => times * base).find(size => Math.floor(high / size) - Math.ceil(low / size) > 1);
    for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(Number((i * step).toPrecision(12)));
  }
  const back = pixel => low + (pixel - from) / (to - from) * (high - low);  // inverse of a linear scale
  return { map, ticks, log, back };
}

// Formats a tick with all its digits, of which a round number has few: with fewer, neighbours could look the same.
function tickText(value) {
  const size = Math.abs(value), round = Number(value.toPrecision(12));
  return size >= 1e4 || (size > 0 && size < 1e-2) ? round.toExponential().replace("e+", "e") : String(round);
}

// The title of a chart, with its unit and its better direction.
function caption(name, unit, better) {
  const notes = [unit, better && `${better} is better`].filter(Boolean).join(", ");
  return element("figcaption", {}, name, notes ? element("span", {}, ` (${notes})`) : null);
}

// Linear interpolation between points [place, value], constant before the first and after the last.
function interpolated(points, place) {
  const i = points.findIndex(([at]) => at >= place);
  if (i <= 0) return points[i < 0 ? points.length - 1 : 0][1];
  const [[a, from], [b, to]] = [points[i - 1], points[i]];
  return from + (place - a) / (b - a) * (to - from);
}

// A two-sided exponential mean: a point at a distance of 1 % of the x range has the weight share, one at 2 % share².
function smoothed(points, share) {
  const whole = points.at(-1)[0] - points[0][0];
  const sums = from => {
    let sum = 0, weight = 0;
    return from.map(([x, value], i) => {
      const kept = i ? share ** (100 * Math.abs(x - from[i - 1][0]) / whole) : 0;
      return [sum, weight] = [kept * sum + value, kept * weight + 1];
    });
  };
  const [before, after] = [sums(points), sums(points.slice().reverse()).reverse()];  // both include the point itself
  return points.map(([x, value], i) => [x, (before[i][0] + after[i][0] - value) / (before[i][1] + after[i][1] - 1)]);
}

// The x axis of these lines: its unit, that unit in units of the data, the place of a step, and the text of a place.
function xOf(lines) {
  const name = lines.every(line => line.axes && line.axes[view.x]) ? view.x : "step";
  if (name === "step") return { unit: "steps", by: 1, place: (line, step) => step, told: at => `step ${shown(at)}` };
  const most = Math.max(...lines.map(line => line.axes[name].at(-1)[1]));
  const [unit, by] = name === "tokens" ? [name, 1] : most > 7200 ? ["hours", 3600] : most > 120 ? ["minutes", 60] : ["seconds", 1];
  return { unit, by, place: (line, step) => interpolated(line.axes[name], step) / by, told: at => `${shown(at)} ${unit}` };
}

// Lines with their points and bands on an x axis.
function placed(along, lines) {
  const at = line => ([step, ...values]) => [along.place(line, step), ...values];
  return lines.map(line => ({ ...line, raw: line.points.map(at(line)), band: (line.band || []).map(at(line)) }));
}

// The x axis that lines share, the lines on it, and all their points, also of their bands.
function spanOf(lines) {
  const along = xOf(lines), there = placed(along, lines);
  return { along, there, all: there.flatMap(line => line.raw.concat(line.band.flatMap(([at, a, b]) => [[at, a], [at, b]]))) };
}

// Draws a line chart. `lines` are {name, points: [[step, value]], color, band: [[step, low, high]], faint, axes}; `axes`
// has points [step, tokens] and [step, seconds]. The values nearest to the pointer are shown below the chart, with the
// names of the lines if there are several or `named` is true. Dragging zooms all charts. Those of one `span` have one scale.
function lineChart({ title, unit, better, lines, span = spanOf(lines), named = false }) {
  const [width, height, left, right, top, bottom] = [340, 200, 50, 334, 8, 166];
  const { along, there, all } = span;
  const part = view.range && view.range.map(value => value / along.by);
  const visible = points => points.filter(([at]) => !part || (at >= part[0] && at <= part[1]));
  const drawn = placed(along, lines).map(line => ({ ...line, points: smoothed(line.raw, Number(view.smooth)) }));
  const covers = (line, at) => line.raw[0][0] <= at && at <= line.raw.at(-1)[0];
  const atEdges = part ? there.flatMap(line => part.filter(at => covers(line, at)).map(at => [at, interpolated(line.raw, at)])) : [];
  const shownAt = visible(all).concat(atEdges);
  const x = scale(part || all.map(point => point[0]), left, right);
  const y = scale((shownAt.length ? shownAt : all).map(point => point[1]), bottom, top, view.height);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const tick of y.ticks) {
    drawing.append(svg("line", { class: "rule", x1: left, x2: right, y1: y.map(tick), y2: y.map(tick) }));
    drawing.append(svg("text", { x: left - 4, y: y.map(tick) + 3, "text-anchor": "end" }, tickText(tick)));
  }
  for (const tick of x.ticks) {
    const anchor = x.map(tick) > right - 20 ? "end" : "middle";
    drawing.append(svg("text", { x: x.map(tick), y: bottom + 14, "text-anchor": anchor }, tickText(tick)));
  }
  drawing.append(svg("text", { x: left, y: height - 5 }, along.unit + (y.log ? " (logarithmic height)" : "")));
  // A nested drawing clips the lines to the visible range.
  const box = [left - 3, top - 3, right - left + 6, bottom - top + 6];
  const inner = svg("svg", { x: box[0], y: box[1], width: box[2], height: box[3], viewBox: box.join(" ") });
  const path = points => points.map(([at, value]) => `${x.map(at).toFixed(1)},${y.map(value).toFixed(1)}`).join(" ");
  const stroke = (points, color, look) => inner.append(svg("polyline", { points: path(points), fill: "none", stroke: color, ...look }));
  for (const { points, raw, band, color, faint } of drawn) {
    if (band.length) {
      const edge = band.map(([at, , high]) => [at, high]).concat(band.map(([at, low]) => [at, low]).reverse());
      inner.append(svg("polygon", { points: path(edge), fill: color, opacity: 0.18 }));
    }
    if (!faint && Number(view.smooth)) stroke(raw, color, { opacity: 0.3, "stroke-width": 1 });
    stroke(points, color, faint ? { opacity: 0.25, "stroke-width": 1 } : { "stroke-width": 1.8 });
    if (points.length === 1) inner.append(svg("circle", { cx: x.map(points[0][0]), cy: y.map(points[0][1]), r: 3, fill: color }));
  }
  drawing.append(inner);
  const clear = drawn.filter(line => !line.faint && line.points.length)
    .map(line => ({ ...line, points: visible(line.points).length ? visible(line.points) : line.points }));
  const [keys, read] = pointed({ drawing, clear, along, x, y, top, bottom, width, named: named || clear.length > 1 });
  return element("figure", {}, caption(title, unit, better), element("div", {}, ...keys), drawing, read);
}

// Makes the pointer show the nearest values, and zoom by dragging. Returns the elements of the legend and of the text.
function pointed({ drawing, clear, along, x, y, top, bottom, width, named }) {
  const pointer = svg("line", { class: "rule", y1: top, y2: bottom, visibility: "hidden" });
  const chosen = svg("rect", { class: "chosen", y: top, height: bottom - top, width: 0 });
  const dots = svg("g");
  drawing.append(chosen, pointer, dots);
  const read = element("output");
  const keys = named ? clear.map(line => element("span", { class: "key", style: `--color: ${line.color}` })) : [];
  const show = here => {
    const near = points => points.reduce((a, b) => Math.abs(b[0] - here) < Math.abs(a[0] - here) ? b : a);
    const nearest = clear.map(line => near(line.points)), at = near(nearest)[0];
    const texts = nearest.map(([own, value]) => shown(value) + (own === at ? "" : ` (${along.told(own)})`));
    read.textContent = along.told(at) + (named ? "" : `: ${texts[0]}`);
    keys.forEach((key, i) => { key.textContent = `${clear[i].name}: ${texts[i]}`; });
    pointer.setAttribute("x1", x.map(at));
    pointer.setAttribute("x2", x.map(at));
    dots.replaceChildren(...nearest.map(([own, value], i) =>
      svg("circle", { cx: x.map(own), cy: y.map(value), r: 3, fill: clear[i].color })));
  };
  const last = Math.max(...clear.flatMap(line => line.points.map(point => point[0])));
  const pixel = event => {
    const box = drawing.getBoundingClientRect();
    return (event.clientX - box.left) / box.width * width;
  };
  let span = null;  // the pixels where dragging began and where the pointer is
  show(last);
  drawing.addEventListener("pointerdown", event => {
    if (event.pointerType === "touch" || event.button) return;  // touch only shows values
    span = [pixel(event), pixel(event)];
    view.dragging = true;
    drawing.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  drawing.addEventListener("pointermove", event => {
    pointer.setAttribute("visibility", "visible");
    show(x.back(pixel(event)));
    if (!span) return;
    span[1] = pixel(event);
    chosen.setAttribute("x", Math.min(...span));
    chosen.setAttribute("width", Math.abs(span[1] - span[0]));
  });
  drawing.addEventListener("lostpointercapture", () => {
    const [a, b] = span.sort((a, b) => a - b);
    span = null;
    view.dragging = false;
    if (b - a > 5) view.choose({ range: [a, b].map(end => x.back(end) * along.by) });
  });
  drawing.addEventListener("dblclick", () => view.choose({ range: null }));
  drawing.addEventListener("pointerleave", () => { pointer.setAttribute("visibility", "hidden"); show(last); });
  return [keys, read];
}
