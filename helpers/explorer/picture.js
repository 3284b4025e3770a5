// The two pictures: the path on the surface, and f over the steps. Both on canvases that are sharp on every screen.

const FONT = "15px system-ui, 'DejaVu Sans', sans-serif";
const STRONG = "600 15px system-ui, 'DejaVu Sans', sans-serif";
const LEVELS_PER_DECADE = 2; // from 1e-3 to 100, as in helpers/plots.py
const DECADES = [-12, 2]; // what the axis of f shows, whatever a run does

// Colours come from helpers/picture.py. On a dark page the light ones of the palette carry the lines.
function theme(palette, dark) {
  const { black, blue, vermilion, sky, orange } = palette;
  const ground = getComputedStyle(document.body).getPropertyValue("--jp-layout-color0") || (dark ? "#111" : "#fff");
  return dark
    ? { dark, page: ground, ink: "#eee", pale: "#444", path: sky, other: orange, torch: "#fff", star: orange }
    : { dark, page: ground, ink: black, pale: "#ddd", path: blue, other: vermilion, torch: black, star: orange };
}

// Give a canvas as many pixels as the screen has there; return its context, in CSS pixels.
// It is opaque: Chromium needs half the time for such a frame.
function sharpen(canvas, [width, height]) {
  const ratio = window.devicePixelRatio || 1;
  const pixels = [width, height].map((length) => Math.round(length * ratio));
  if (canvas.width !== pixels[0]) canvas.width = pixels[0];
  if (canvas.height !== pixels[1]) canvas.height = pixels[1];
  const context = canvas.getContext("2d", { alpha: false });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = FONT;
  context.lineJoin = "bevel";
  return context;
}

// What stays while a slider moves is drawn once, on a sheet that lies under every picture of this canvas.
const sheets = new WeakMap();
function begin(canvas, size, colours, more, draw) {
  const key = [...size, window.devicePixelRatio, JSON.stringify(colours), more].join();
  if (sheets.get(canvas)?.key !== key) {
    const sheet = document.createElement("canvas");
    const context = sharpen(sheet, size);
    context.fillStyle = colours.page;
    context.fillRect(0, 0, ...size);
    draw(context);
    sheets.set(canvas, { key, sheet });
  }
  const context = sharpen(canvas, size);
  context.drawImage(sheets.get(canvas).sheet, 0, 0, ...size);
  return context;
}

function frame(width, height) {
  return { left: 46, right: width - 16, top: 10, bottom: height - 42 };
}

// --- the surface

function surfaceScales(width, height, [left, right, bottom, top]) {
  const box = frame(width, height);
  const perX = (box.right - box.left) / (right - left);
  const perY = (box.bottom - box.top) / (top - bottom);
  return {
    box,
    x: (x0) => box.left + (x0 - left) * perX,
    y: (x1) => box.bottom - (x1 - bottom) * perY,
    x0: (x) => left + (x - box.left) / perX,
    x1: (y) => bottom + (box.bottom - y) / perY,
    perX,
    perY,
  };
}

// Shades between levels, and a line where the level, a smooth number, passes a whole one.
function contours(width, height, view, colours) {
  const ratio = window.devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const scales = surfaceScales(width, height, view);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const g = [0, 0];
  for (let row = 0; row < canvas.height; row++) {
    for (let column = 0; column < canvas.width; column++) {
      const x = [scales.x0((column + 0.5) / ratio), scales.x1((row + 0.5) / ratio)];
      const f = Math.max(value(x), 1e-9);
      const level = LEVELS_PER_DECADE * (Math.log10(f) + 3);
      gradient(x, g);
      const slope = (LEVELS_PER_DECADE / (f * Math.LN10)) * Math.hypot(g[0] / scales.perX, g[1] / scales.perY);
      const distance = Math.abs(level - Math.round(level)) / (slope + 1e-9); // to the nearest line, in CSS pixels
      const line = level > -0.5 ? Math.max(0, Math.min(1, 1.1 - distance)) : 0;
      const shade = Math.max(0, Math.min(10, Math.floor(level)));
      const alpha = 0.012 * shade + 0.2 * line;
      const at = 4 * (row * canvas.width + column);
      image.data.fill(colours.dark ? 255 : 0, at, at + 3);
      image.data[at + 3] = 255 * alpha;
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

const FAR = 1e4; // pixels; a canvas counts no further, and a path that runs away goes on for ever

// The part of the way from (x, y) by (across, down) that is not far away, as two fractions of it; null if there is none.
// Source: Y.-D. Liang and B. A. Barsky, "A new concept and method for line clipping", ACM TOG 3 (1984).
function near(x, y, across, down) {
  let [from, to] = [0, 1];
  for (const [at, way] of [[x, across], [y, down]]) {
    const ends = [(-FAR - at) / way, (FAR - at) / way];
    if (way) [from, to] = [Math.max(from, Math.min(...ends)), Math.min(to, Math.max(...ends))];
    else if (Math.abs(at) > FAR) return null;
  }
  return from <= to ? [from, to] : null;
}

function trace(context, count, place) {
  context.beginPath();
  let [x, y, pen] = [NaN, NaN, false];
  for (let i = 0; i < count; i++) {
    const [u, v] = place(i);
    const isNear = Math.abs(u) <= FAR && Math.abs(v) <= FAR;
    if (isNear && pen) {
      context.lineTo(u, v);
    } else {
      const part = Number.isFinite(u - x) && Number.isFinite(v - y) && near(x, y, u - x, v - y);
      if (part && !pen) context.moveTo(x + part[0] * (u - x), y + part[0] * (v - y));
      if (part) context.lineTo(x + part[1] * (u - x), y + part[1] * (v - y));
      else if (isNear) context.moveTo(u, v);
    }
    [x, y, pen] = [u, v, isNear];
  }
  context.stroke();
}

function clipped(context, { left, right, top, bottom }, draw) {
  context.save();
  context.beginPath();
  context.rect(left, top, right - left, bottom - top);
  context.clip();
  draw();
  context.restore();
}

// Write a word on a ground of the page's colour, kept inside the box.
function say(context, words, x, y, box, colours, colour = colours.ink) {
  context.font = STRONG;
  const width = context.measureText(words).width;
  const at = Math.max(box.left + 4, Math.min(box.right - width - 4, x));
  const base = Math.max(box.top + 18, Math.min(box.bottom - 6, y));
  context.globalAlpha = 0.8;
  context.fillStyle = colours.page;
  context.fillRect(at - 3, base - 15, width + 6, 20);
  context.globalAlpha = 1;
  context.fillStyle = colour;
  context.fillText(words, at, base);
  context.font = FONT;
}

function star(context, x, y, radius) {
  context.beginPath();
  for (let i = 0; i < 10; i++) {
    const angle = (Math.PI * i) / 5 - Math.PI / 2;
    const r = i % 2 ? radius * 0.42 : radius;
    context.lineTo(x + r * Math.cos(angle), y + r * Math.sin(angle));
  }
  context.closePath();
}

// Draw an axis; the name of an upright one is said in the picture, above its lines.
function axis(context, box, colours, ticks, across = "") {
  context.strokeStyle = context.fillStyle = colours.ink;
  context.lineWidth = 1;
  context.textAlign = across ? "center" : "right";
  for (const [at, label] of ticks) {
    context.beginPath();
    if (across) context.moveTo(at, box.bottom), context.lineTo(at, box.bottom + 4);
    else context.moveTo(box.left, at), context.lineTo(box.left - 4, at);
    context.stroke();
    if (across) context.fillText(label, at, box.bottom + 19);
    else context.fillText(label, box.left - 7, at + 5);
  }
  context.beginPath();
  context.moveTo(box.left, box.top);
  context.lineTo(box.left, box.bottom);
  context.lineTo(box.right, box.bottom);
  context.stroke();
  if (across) context.fillText(across, (box.left + box.right) / 2, box.bottom + 37);
  context.textAlign = "left";
}

function drawPath(context, scales, run, { colour, width = 2.6, dash = [], dots = true }) {
  const place = (i) => [scales.x(run.points[2 * i]), scales.y(run.points[2 * i + 1])];
  context.strokeStyle = context.fillStyle = colour;
  context.lineWidth = width;
  context.setLineDash(dash);
  trace(context, run.steps + 1, place);
  context.setLineDash([]);
  if (!dots) return;
  context.beginPath();
  for (let i = 1; i < run.steps; i++) {
    const [x, y] = place(i);
    if (Number.isFinite(x) && Number.isFinite(y)) context.rect(x - 2, y - 2, 4, 4);
  }
  context.fill();
}

function drawEnd(context, scales, run, colour, colours) {
  const last = run.points.subarray(2 * run.steps);
  if (!last.every(Number.isFinite)) return;
  context.fillStyle = colour;
  context.strokeStyle = colours.ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.rect(scales.x(last[0]) - 5.5, scales.y(last[1]) - 5.5, 11, 11);
  context.fill();
  context.stroke();
}

function drawSurface(canvas, size, { runs, ends, torch, optimum, view }, colours) {
  const scales = surfaceScales(...size, view);
  const { box } = scales;
  const context = begin(canvas, size, colours, view, (sheet) => {
    clipped(sheet, box, () => sheet.drawImage(contours(...size, view, colours), 0, 0, ...size));
    const ticks = [-0.5, 0, 0.5, 1, 1.5].map((at) => [at, String(at).replace("-", "−")]);
    axis(sheet, box, colours, ticks.map(([at, label]) => [scales.x(at), label]), "x₀");
    axis(sheet, box, colours, ticks.map(([at, label]) => [scales.y(at), label]));
  });
  const [main, other] = runs;
  clipped(context, box, () => {
    context.fillStyle = colours.path;
    context.globalAlpha = 0.45;
    for (const run of ends) {
      const last = run.points.subarray(2 * run.steps);
      context.beginPath();
      context.arc(scales.x(last[0]), scales.y(last[1]), 5, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
    if (other) drawPath(context, scales, other, { colour: colours.other, width: 2, dash: [9, 4], dots: false });
    drawPath(context, scales, main, { colour: colours.path });
    if (torch) drawPath(context, scales, torch, { colour: colours.torch, width: 1.6, dash: [3, 5], dots: false });
    star(context, scales.x(optimum[0]), scales.y(optimum[1]), 17);
    context.fillStyle = colours.star;
    context.fill();
    context.strokeStyle = colours.ink;
    context.lineWidth = 1.2;
    context.stroke();
    if (other) drawEnd(context, scales, other, colours.other, colours);
    drawEnd(context, scales, main, colours.path, colours);
  });
  say(context, "x₁", box.left + 6, box.top + 16, box, colours);
  const best = [scales.x(optimum[0]), scales.y(optimum[1])];
  say(context, `optimum (${optimum.join(", ")})`, best[0] + 14, best[1] + 34, box, colours);
  const last = [...main.points.subarray(2 * main.steps)];
  const seen = (p) => p[0] > view[0] && p[0] < view[1] && p[1] > view[2] && p[1] < view[3];
  if (seen(last)) say(context, "end", scales.x(last[0]) - 44, scales.y(last[1]) - 10, box, colours, colours.path);
}

// --- f over the steps

const SUPERSCRIPT = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const power = (exponent) => (exponent ? `10${[...String(exponent)].map((c) => SUPERSCRIPT[c]).join("")}` : "1");

// The quartiles of f over the seeds, step by step. What is not finite counts as the worst.
function quartiles(runs) {
  const at = [0.25, 0.5, 0.75].map((part) => Math.round(part * (runs.length - 1)));
  const lines = at.map(() => new Float64Array(runs[0].steps + 1));
  const column = new Float64Array(runs.length);
  for (let t = 0; t <= runs[0].steps; t++) {
    runs.forEach((run, i) => (column[i] = Number.isFinite(run.values[t]) ? run.values[t] : Infinity));
    column.sort();
    at.forEach((index, which) => (lines[which][t] = column[index]));
  }
  return lines;
}

function drawLosses(canvas, size, { runs, ends, torch }, colours) {
  const box = frame(...size);
  const [main, other] = runs;
  const x = (t) => box.left + ((box.right - box.left) * t) / main.steps;
  const y = (f) => {
    const decade = Math.max(DECADES[0] - 1, Math.log10(f)); // below the axis is below, also for f = 0
    return box.bottom - ((box.bottom - box.top) * (decade - DECADES[0])) / (DECADES[1] - DECADES[0]);
  };
  const context = begin(canvas, size, colours, main.steps, (sheet) => {
    const decades = [];
    for (let e = DECADES[0]; e <= DECADES[1]; e += 2) decades.push([y(10 ** e), power(e)]);
    sheet.lineWidth = 1;
    for (const [at] of decades) {
      const isAsked = Math.abs(at - y(OPTIMUM_SEEN)) < 0.5; // by the sentence and by a task
      sheet.strokeStyle = isAsked ? colours.ink : colours.pale;
      sheet.beginPath();
      sheet.moveTo(box.left, at);
      sheet.lineTo(box.right, at);
      sheet.stroke();
    }
    const marks = [0, 0.5, 1].map((part) => Math.round(part * main.steps)).map((t) => [x(t), String(t)]);
    axis(sheet, box, colours, marks, "step");
    axis(sheet, box, colours, decades);
  });
  const line = (values, colour, lineWidth, dash = []) => {
    Object.assign(context, { strokeStyle: colour, lineWidth });
    context.setLineDash(dash);
    trace(context, values.length, (t) => [x(t), y(values[t])]);
    context.setLineDash([]);
  };
  clipped(context, box, () => {
    if (ends.length) {
      const [low, middle, high] = quartiles(ends);
      const lowest = (f) => Math.max(-1e4, y(f));
      context.fillStyle = colours.path;
      context.globalAlpha = 0.28;
      context.beginPath();
      low.forEach((f, t) => context.lineTo(x(t), lowest(f)));
      for (let t = high.length - 1; t >= 0; t--) context.lineTo(x(t), lowest(high[t]));
      context.fill();
      context.globalAlpha = 1;
      line(middle, colours.path, 1.5, [2, 3]);
    }
    if (other) line(other.values, colours.other, 2, [9, 4]);
    line(main.values, colours.path, 2.6);
    if (torch) line(torch.values, colours.torch, 1.6, [3, 5]);
  });
  say(context, "f without noise", box.left + 6, box.top + 16, box, colours);
  const names = [[main.optimizer, colours.path]];
  if (other) names.push([`${other.optimizer}, dashed`, colours.other]);
  if (torch) names.push(["torch, dotted", colours.torch]);
  names.reverse().forEach(([name, colour], row) => {
    say(context, name, box.left + 8, box.bottom - 8 - 22 * row, box, colours, colour);
  });
}
