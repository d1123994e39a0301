"use strict";
// The parts that pages share: elements, tables, line charts, heat maps and examples. Texts become text nodes, never markup.

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

// A number with four digits, another value as its text.
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

// Rows are arrays of cells; a cell is a value or {value, style, link}. Numbers stand on the right.
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

// A table whose columns sort when their names are pressed; `sorted`, {column, down}, keeps which one did.
// `columns` are [name, title, value of a row, cell of a row], where the cell is by default the value.
function sortable(columns, rows, sorted, redraw) {
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
  const found = table([], rows.map(row => columns.map(([, , value, cell = value]) => cell(row))));
  found.classList.add("named");
  found.querySelector("thead tr").append(...head);
  return found;
}

// Puts others in the place of what a holder holds; parts that a reader has opened or closed stay so.
function replace(holder, ...nodes) {
  const were = [...holder.querySelectorAll("details")].map(part => part.open);
  holder.replaceChildren(...nodes);
  const now = [...holder.querySelectorAll("details")];
  if (now.length === were.length) now.forEach((part, i) => { part.open = were[i]; });
}

// A field for words, and a function that says whether a text has all of them.
function wordFilter(redraw) {
  const field = element("input", { type: "search", placeholder: "filter: words of a row", "aria-label": "filter", oninput: redraw });
  return [field, text => field.value.toLowerCase().split(/\s+/).every(word => text.toLowerCase().includes(word))];
}

// What a reader has chosen for all charts of a page; it stays when newer data come. `range` is the part of x that is shown.
const view = { x: "step", height: "auto", smooth: "0", range: null, dragging: false, redraw: () => {} };

// The line above the charts: what x is, how heights are mapped, smoothing, and the way back from a part.
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

// A scale maps values to pixels, and has round ticks. It is logarithmic if `height` says so, or if the values span two
// decades and it says auto; values that are not positive leave it linear.
function scale(values, from, to, height = "linear") {
  let low = Math.min(...values), high = Math.max(...values);
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
    const step = [1, 2, 5, 10].map(times => times * base).find(size => size >= rough);
    for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(Number((i * step).toPrecision(12)));
  }
  const back = pixel => low + (pixel - from) / (to - from) * (high - low);  // of a linear scale
  return { map, ticks, log, back };
}

function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e4 || (size > 0 && size < 1e-2)) return value.toExponential(1).replace(".0e", "e").replace("e+", "e");
  return String(value);
}

// The title of a chart, with its unit and which way is better.
function caption(name, unit, better) {
  const notes = [unit, better && `${better} is better`].filter(Boolean).join(", ");
  return element("figcaption", {}, name, notes ? element("span", {}, ` (${notes})`) : null);
}

// The value at a place between points [place, value], whose first and last hold beyond them.
function interpolated(points, place) {
  const i = points.findIndex(([at]) => at >= place);
  if (i <= 0) return points[i < 0 ? points.length - 1 : 0][1];
  const [[a, from], [b, to]] = [points[i - 1], points[i]];
  return from + (place - a) / (b - a) * (to - from);
}

// A mean around each point, in which a point that is a hundredth of the whole away weighs share, two hundredths share².
function smoothed(points, share) {
  const whole = points.at(-1)[0] - points[0][0];
  const sums = from => {
    let sum = 0, weight = 0;
    return from.map(([x, value], i) => {
      const kept = i ? share ** (100 * Math.abs(x - from[i - 1][0]) / whole) : 0;
      return [sum, weight] = [kept * sum + value, kept * weight + 1];
    });
  };
  const [before, after] = [sums(points), sums(points.slice().reverse()).reverse()];  // both have the point itself
  return points.map(([x, value], i) => [x, (before[i][0] + after[i][0] - value) / (before[i][1] + after[i][1] - 1)]);
}

// What x is for these lines: its unit, in how many of the data's units; where a step is; and how a place is told.
function xOf(lines) {
  const name = lines.every(line => line.axes && line.axes[view.x]) ? view.x : "step";
  if (name === "step") return { unit: "steps", by: 1, place: (line, step) => step, told: at => `step ${shown(at)}` };
  const most = Math.max(...lines.map(line => line.axes[name].at(-1)[1]));
  const [unit, by] = name === "tokens" ? [name, 1] : most > 7200 ? ["hours", 3600] : most > 120 ? ["minutes", 60] : ["seconds", 1];
  return { unit, by, place: (line, step) => interpolated(line.axes[name], step) / by, told: at => `${shown(at)} ${unit}` };
}

// Draws lines; `lines` are {name, points: [[step, value]], color, band: [[step, low, high]], faint, axes}, where `axes`
// has points [step, tokens] and [step, seconds]. The values nearest to the pointer stand below the chart, beside the
// names where there are several or `named` asks. Dragging zooms all charts.
function lineChart({ title, unit, better, lines, range, named = false }) {
  const [width, height, left, right, top, bottom] = [340, 200, 50, 334, 8, 166];
  const along = xOf(lines);
  const placed = line => {
    const at = ([step, ...values]) => [along.place(line, step), ...values];
    return { ...line, raw: line.points.map(at), points: smoothed(line.points.map(at), Number(view.smooth)), band: (line.band || []).map(at) };
  };
  const part = view.range && view.range.map(value => value / along.by);
  const visible = points => points.filter(([at]) => !part || (at >= part[0] && at <= part[1]));
  const drawn = lines.map(placed);
  const all = (range ? range.map(placed) : drawn).flatMap(line => line.raw.concat(line.band.flatMap(([at, a, b]) => [[at, a], [at, b]])));
  const covers = (line, at) => line.raw[0][0] <= at && at <= line.raw.at(-1)[0];
  const atEdges = part ? drawn.flatMap(line => part.filter(at => covers(line, at)).map(at => [at, interpolated(line.raw, at)])) : [];
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
  // What lies beyond the part that is shown is cut off at the edge of a drawing inside the drawing.
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

// Lets the pointer read the nearest values of the lines, and zoom by dragging; returns the lines' names and the text below.
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
  let span = null;  // the pixels where dragging began and where it is
  show(last);
  drawing.addEventListener("pointerdown", event => {
    if (event.pointerType === "touch" || event.button) return;  // a finger reads values
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

// A picture of a matrix, one pixel a cell: from clear to the accent color, or red and blue where values are signed.
function pixels(values, nRows, nColumns, most, signed) {
  const canvas = element("canvas", { width: nColumns, height: nRows });
  const context = canvas.getContext("2d"), image = context.createImageData(nColumns, nRows);
  values.forEach((value, i) => {
    const [red, green, blue] = signed && value < 0 ? [200, 70, 40] : [40, 110, 220];
    // The square root lets small weights be seen beside large ones.
    image.data.set([red, green, blue, 255 * Math.sqrt(Math.min(1, Math.abs(value) / (most || 1)))], 4 * i);
  });
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

// Draws a matrix. `rows` and `columns` are labels, or numbers of rows and columns; `values` are row by row.
// `most` is the size of a value of full color.
function heatMap({ title, rows, columns, rowName, columnName, values, most, unit = "" }) {
  const labels = side => typeof side === "number" ? Array.from({ length: side }, (_, i) => String(i)) : side;
  const [down, across] = [labels(rows), labels(columns)];
  const signed = values.some(value => value < 0);
  const words = typeof columns !== "number";
  const longest = words ? Math.max(...across.map(label => short(label, 8).length)) : 1;
  const [left, top, bottom, width] = [72, 4, words ? 24 + 7 * longest : 32, 340];
  const cell = words ? Math.min(26, (width - left - 4) / across.length) : (width - left - 4) / across.length;
  const tall = words ? cell : Math.min(16, Math.max(3, 150 / down.length));
  const [inner, high] = [cell * across.length, tall * down.length];
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${top + high + bottom}`, role: "img", "aria-label": title });
  drawing.append(svg("image", { x: left, y: top, width: inner, height: high, preserveAspectRatio: "none",
    href: pixels(values, down.length, across.length, most, signed) }));
  drawing.append(svg("rect", { class: "rule", x: left, y: top, width: inner, height: high, fill: "none" }));
  const every = (size, room) => Math.ceil(room / size);
  down.forEach((label, i) => {
    if (i % every(tall, 10) === 0) {
      drawing.append(svg("text", { x: left - 4, y: top + (i + 0.5) * tall + 3, "text-anchor": "end" }, short(label, 8)));
    }
  });
  across.forEach((label, i) => {
    if (i % every(cell, words ? 10 : 34)) return;
    const [x, y] = [left + (i + 0.5) * cell, top + high + (words ? 6 : 12)];
    drawing.append(words
      ? svg("text", { x, y, transform: `rotate(-90 ${x} ${y})`, dy: 3, "text-anchor": "end" }, short(label, 8))
      : svg("text", { x, y, "text-anchor": "middle" }, label));
  });
  drawing.append(svg("text", { x: left + inner / 2, y: top + high + bottom - 2, "text-anchor": "middle" }, columnName));
  drawing.append(svg("text", { x: 8, y: top + high / 2, transform: `rotate(-90 8 ${top + high / 2})`, "text-anchor": "middle" }, rowName));
  const range = signed ? `full red −${shown(most)}${unit}, full blue ${shown(most)}${unit} (square-root scale)` : `no color 0${unit}, full color ${shown(most)}${unit} (square-root scale)`;
  const read = element("output", {}, range);
  drawing.addEventListener("pointermove", event => {
    const box = drawing.getBoundingClientRect(), zoom = width / box.width;
    const j = Math.floor(((event.clientX - box.left) * zoom - left) / cell);
    const i = Math.floor(((event.clientY - box.top) * zoom - top) / tall);
    const inside = i >= 0 && j >= 0 && i < down.length && j < across.length;
    read.textContent = inside
      ? `${rowName} ${i} ${words || typeof rows !== "number" ? `“${down[i]}”` : ""}, ${columnName} ${j}` +
        `${words ? ` “${across[j]}”` : ""}: ${shown(values[i * across.length + j])}${unit}`
      : range;
  });
  drawing.addEventListener("pointerleave", () => { read.textContent = range; });
  return element("figure", { class: "map" }, element("figcaption", {}, title), drawing, read);
}

// The largest size of a value of all heads, so that a color means the same in each of their pictures.
function largest(heads) {
  return heads.flatMap(head => head.values).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

// What is inside a model while it reads one example: heat maps and the logit lens; the first example stands open.
function insideExample({ title, maps, lens }, i) {
  return element("details", i ? {} : { open: "" },
    element("summary", {}, title),
    ...maps.map(({ name, heads, ...map }) => element("div", {},
      element("p", {}, name),
      element("div", { class: "maps" }, ...heads.map(head => heatMap({ ...map, ...head, most: largest(heads) }))))),
    lens ? element("details", {}, element("summary", {}, "Logit lens: the most probable next token after each block"),
      table(lens[0], lens.slice(1))) : null);
}
