// Sizes of models from one template directory, and the weights of their layers, composed here.
"use strict";
const data = JSON.parse(document.getElementById("composer-data").textContent);
const bytes = Uint8Array.from(atob(data.values), (c) => c.charCodeAt(0));
const values = new Float32Array(bytes.buffer);

/** Rows and columns of a part's weight. */
function sides(part, width) {
  const hidden = Math.floor(width * data.mlp_ratio);
  return { qkv: [3 * width, width], proj: [width, width], fc1: [hidden, width], fc2: [width, hidden] }[part];
}

/** The block that block `j` of `to` reads of `from`, and its share: an input that is copied is divided. */
function reading(from, to, divide) {
  return Array.from({ length: to }, (_, j) => {
    const copies = Math.floor(to / from) + (j % from < to % from ? 1 : 0);
    return [j % from, divide && to > from ? 1 / copies : 1];
  });
}

/** Scalers of a layer: the interpolation of two anchors. */
function scalersOf(bank, layer, depth) {
  const size = bank.shape.slice(1).reduce((a, b) => a * b);
  const steps = data.depth_rule === "l/L" ? depth : Math.max(depth - 1, 1);
  const position = (layer * (bank.shape[0] - 1)) / steps;
  const k = Math.floor(position);
  const next = Math.min(k + 1, bank.shape[0] - 1);
  const f = position - k;
  return Float32Array.from({ length: size }, (_, i) => {
    const at = (anchor) => values[bank.offset + anchor * size + i];
    return (1 - f) * at(k) + f * at(next);
  });
}

/** The weight of a part in one layer, row by row: the sum of scalers times templates, of the first level that holds it. */
function composed(part, layer, depth, width) {
  const level = data.levels.find((level) => depth <= level.depth && width <= level.width) ?? data.levels.at(-1);
  const { bank, templates, segments } = level.parts[part];
  const t = data.template_size;
  const [rows, cols] = sides(part, width);
  const [n, bankRows, bankCols] = bank.shape.slice(1);
  const height = rows / segments;
  const [r, c] = [Math.ceil(height / t), Math.ceil(cols / t)];
  const ownCols = sides(part, level.bank_width)[1];
  const tile = data.kronecker === "tile";
  // A copy that would be cropped is not read: its rest could not make up for the lost part.
  const uncut = Math.floor(cols / t);
  const cropped = tile && bankCols <= uncut && cols % t !== 0 && ownCols % t === 0;
  const readRows = reading(bankRows / segments, r, false);
  const readCols = reading(bankCols, cropped ? uncut : c, true);
  const scalers = scalersOf(bank, layer, depth);
  const weight = new Float32Array(rows * cols);
  for (let s = 0; s < segments; s++) {
    for (let a = 0; a < r; a++) {
      for (let b = 0; b < readCols.length; b++) {
        const [sourceRow] = readRows[a];
        const [sourceCol, share] = readCols[b];
        const row = (s * bankRows) / segments + sourceRow;
        for (let i = 0; i < t; i++) {
          const whole = tile ? (s * r + a) * t + i : i * segments * r + s * r + a;
          const [segment, y] = [Math.floor(whole / (r * t)), whole % (r * t)];
          if (y >= height) continue; // segments are cropped one by one
          for (let j = 0; j < t; j++) {
            const x = tile ? b * t + j : j * c + b;
            if (x >= cols) continue;
            let sum = 0;
            for (let m = 0; m < n; m++) {
              const scaler = scalers[(m * bankRows + row) * bankCols + sourceCol];
              sum += scaler * values[templates.offset + (m * t + i) * t + j];
            }
            weight[(segment * height + y) * cols + x] = sum * share;
          }
        }
      }
    }
  }
  return weight;
}

/** Blue below 0, white at 0, red above. */
function colour(value) {
  const fade = Math.round(255 * (1 - Math.min(Math.abs(value), 1)));
  return value < 0 ? [fade, fade, 255] : [255, fade, fade];
}

function draw(canvas, weight, rows, cols) {
  const largest = weight.reduce((most, w) => Math.max(most, Math.abs(w)), 1e-12);
  canvas.width = cols;
  canvas.height = rows;
  const image = canvas.getContext("2d").createImageData(cols, rows);
  weight.forEach((w, i) => image.data.set([...colour(w / largest), 255], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return largest;
}

function start() {
  const field = (name) => document.getElementById("composer-" + name);
  const short = (n) => Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 }).format(n);
  function update() {
    const depth = Number(field("depth").value);
    const width = data.widths[Number(field("width").value)];
    field("layer").max = depth - 1;
    const layer = Math.min(Number(field("layer").value), depth - 1);
    const part = field("part").value;
    const size = data.sizes[depth - 1][Number(field("width").value)];
    const expected =
      size.top1 === null
        ? "accuracy not known, outside the recorded sizes"
        : `expected top-1 ${(100 * size.top1).toFixed(1)} %, ${size.from}`;
    field("size").textContent =
      `${depth} layers, width ${width}: ${short(size.parameters)} parameters, ` +
      `${short(size.multiply_adds)} multiply-adds of an image; ${expected}.`;
    field("command").textContent = `wave expand ${data.name} --depth ${depth} --width ${width}`;
    if (!values.length) return;
    const [rows, cols] = sides(part, width);
    const largest = draw(field("canvas"), composed(part, layer, depth, width), rows, cols);
    field("caption").textContent =
      `${part} of layer ${layer}: ${rows} x ${cols}, blue and red are -${largest.toPrecision(2)} and ` +
      `+${largest.toPrecision(2)}`;
  }
  for (const name of ["depth", "width", "layer", "part"]) field(name).addEventListener("input", update);
  update();
}

if (document.getElementById("composer-depth")) start();
