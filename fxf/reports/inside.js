"use strict";
// Inside a model: heat maps and examples.

// An image of a matrix, one pixel per cell: from transparent to blue, or red for negative values.
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

// Draws a matrix. `rows` and `columns` are labels or counts; `values` are in row-major order.
// `most` is the absolute value of full color.
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

// The largest absolute value of all heads, so that their images share one color scale.
function largest(heads) {
  return heads.flatMap(head => head.values).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}

// The heat maps and the logit lens of one example; the first example is open.
function insideExample({ title, maps, lens }, i) {
  return element("details", i ? {} : { open: "" },
    element("summary", {}, title),
    ...maps.map(({ name, heads, ...map }) => element("div", {},
      element("p", {}, name),
      element("div", { class: "maps" }, ...heads.map(head => heatMap({ ...map, ...head, most: largest(heads) }))))),
    lens ? element("details", {}, element("summary", {}, "Logit lens: the most probable next token after each block"),
      table(lens[0], lens.slice(1))) : null);
}
