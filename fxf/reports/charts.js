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

// Rows are arrays of cells; a cell is a value or {value, style}. Numbers stand on the right.
function table(header, rows) {
  const cell = content => {
    const { value, style = "" } = content !== null && typeof content === "object" ? content : { value: content };
    const kind = typeof value === "number" ? "number " : "";
    return element("td", { class: kind + style }, shown(value));
  };
  const lines = rows.map(row => element("tr", row.style ? { class: row.style } : {}, ...row.map(cell)));
  const head = header.map(name => element("th", {}, name));
  return element("div", { class: "scroll" },
    element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines)));
}

// A scale maps values to pixels, and has round ticks. It is logarithmic if the values span two decades.
function scale(values, from, to, mayBeLogarithmic) {
  let low = Math.min(...values), high = Math.max(...values);
  const log = mayBeLogarithmic && low > 0 && high >= 100 * low;
  if (low === high) [low, high] = [Math.min(low, 0), Math.max(high, 0) || 1];
  const place = log ? Math.log10 : value => value;
  const map = value => from + (place(value) - place(low)) / (place(high) - place(low)) * (to - from);
  const ticks = [];
  if (log) {
    const every = Math.ceil((Math.log10(high) - Math.log10(low)) / 5);
    for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power += every) ticks.push(10 ** power);
  } else {
    const rough = (high - low) / 4, base = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(times => times * base).find(size => size >= rough);
    for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(Number((i * step).toPrecision(12)));
  }
  return { map, ticks, log };
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

// Draws lines over steps; `lines` are {name, points: [[step, value]], color, band: [[step, low, high]], faint}.
// The values nearest to the pointer stand below the chart, beside the names where there are several or `named` asks.
function lineChart({ title, unit, better, lines, range, named = false }) {
  const [width, height, left, right, top, bottom] = [340, 200, 50, 334, 8, 166];
  const all = (range || lines).flatMap(line => line.points.concat((line.band || []).flatMap(([x, a, b]) => [[x, a], [x, b]])));
  const x = scale(all.map(point => point[0]), left, right, false);
  const y = scale(all.map(point => point[1]), bottom, top, true);
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  for (const tick of y.ticks) {
    drawing.append(svg("line", { class: "rule", x1: left, x2: right, y1: y.map(tick), y2: y.map(tick) }));
    drawing.append(svg("text", { x: left - 4, y: y.map(tick) + 3, "text-anchor": "end" }, tickText(tick)));
  }
  for (const tick of x.ticks) {
    const anchor = x.map(tick) > right - 20 ? "end" : "middle";
    drawing.append(svg("text", { x: x.map(tick), y: bottom + 14, "text-anchor": anchor }, tickText(tick)));
  }
  drawing.append(svg("text", { x: left, y: height - 5 }, y.log ? "steps (logarithmic height)" : "steps"));
  for (const line of lines) {
    const path = line.points.map(([step, value]) => `${x.map(step).toFixed(1)},${y.map(value).toFixed(1)}`);
    if (line.band) {
      const edge = line.band.map(([step, , high]) => [step, high]).concat(line.band.map(([step, low]) => [step, low]).reverse());
      const points = edge.map(([step, value]) => `${x.map(step).toFixed(1)},${y.map(value).toFixed(1)}`).join(" ");
      drawing.append(svg("polygon", { points, fill: line.color, opacity: 0.18 }));
    }
    const look = line.faint ? { opacity: 0.25, "stroke-width": 1 } : { "stroke-width": 1.8 };
    drawing.append(svg("polyline", { points: path.join(" "), fill: "none", stroke: line.color, ...look }));
    if (line.points.length === 1) drawing.append(svg("circle", { cx: x.map(line.points[0][0]), cy: y.map(line.points[0][1]), r: 3, fill: line.color }));
  }
  const pointer = svg("line", { class: "rule", y1: top, y2: bottom, visibility: "hidden" });
  const dots = svg("g");
  drawing.append(pointer, dots);
  const read = element("output");
  const clear = lines.filter(line => !line.faint && line.points.length);
  named ||= clear.length > 1;
  const keys = named ? clear.map(line => element("span", { class: "key", style: `--color: ${line.color}` })) : [];
  const show = at => {
    const nearest = clear.map(line => line.points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a));
    const step = nearest.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a)[0];
    const texts = nearest.map(([at, value]) => shown(value) + (at === step ? "" : ` (step ${shown(at)})`));
    read.textContent = `step ${shown(step)}` + (named ? "" : `: ${texts[0]}`);
    keys.forEach((key, i) => { key.textContent = `${clear[i].name}: ${texts[i]}`; });
    pointer.setAttribute("x1", x.map(step));
    pointer.setAttribute("x2", x.map(step));
    dots.replaceChildren(...clear.map((line, i) =>
      svg("circle", { cx: x.map(nearest[i][0]), cy: y.map(nearest[i][1]), r: 3, fill: line.color })));
  };
  const last = Math.max(...clear.flatMap(line => line.points.map(point => point[0])));
  show(last);
  drawing.addEventListener("pointermove", event => {
    const box = drawing.getBoundingClientRect();
    const part = ((event.clientX - box.left) / box.width * width - left) / (right - left);
    const steps = all.map(point => point[0]);
    pointer.setAttribute("visibility", "visible");
    show(Math.min(...steps) + part * (Math.max(...steps) - Math.min(...steps)));
  });
  drawing.addEventListener("pointerleave", () => { pointer.setAttribute("visibility", "hidden"); show(last); });
  return element("figure", {}, caption(title, unit, better), element("div", {}, ...keys), drawing, read);
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
function heatMap({ title, rows, columns, rowName, columnName, values, unit = "" }) {
  const labels = side => typeof side === "number" ? Array.from({ length: side }, (_, i) => String(i)) : side;
  const [down, across] = [labels(rows), labels(columns)];
  const signed = values.some(value => value < 0);
  const most = Math.max(...values.map(Math.abs));
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

// What is inside a model while it reads one example: heat maps and the logit lens; the first example stands open.
function insideExample({ title, maps, lens }, i) {
  return element("details", i ? {} : { open: "" },
    element("summary", {}, title),
    ...maps.map(({ name, heads, ...map }) => element("div", {},
      element("p", {}, name),
      element("div", { class: "maps" }, ...heads.map(head => heatMap({ ...map, ...head }))))),
    lens ? element("details", {}, element("summary", {}, "Logit lens: the most probable next token after each block"),
      table(lens[0], lens.slice(1))) : null);
}
