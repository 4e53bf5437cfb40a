// A model of any size from one template directory, made and run in the browser.
"use strict";
const data = JSON.parse(document.getElementById("composer-data").textContent);
const values = decoded(data.values);

/** Numbers of base64 in little-endian f32 or f16. */
function decoded(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  if (data.dtype === "f32") return new Float32Array(bytes.buffer);
  return Float32Array.from(new Uint16Array(bytes.buffer), (half) => {
    const [exponent, fraction] = [(half >> 10) & 31, half & 1023];
    const size = exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024);
    return half & 0x8000 ? -size : size;
  });
}

/** Rows and columns of a part's weight. */
function sides(part, width) {
  const hidden = Math.floor(width * data.mlp_ratio);
  return { qkv: [3 * width, width], proj: [width, width], fc1: [hidden, width], fc2: [width, hidden] }[part];
}

/** The first level that holds a size. */
function levelOf(depth, width) {
  return data.levels.find((level) => depth <= level.depth && width <= level.width) ?? data.levels.at(-1);
}

/** The block that block `j` of `to` reads of `from`, and its share: an input that is copied is divided. */
function reading(from, to, divide) {
  return Array.from({ length: to }, (_, j) => {
    const copies = Math.floor(to / from) + (j % from < to % from ? 1 : 0);
    return [j % from, divide && to > from ? 1 / copies : 1];
  });
}

/** A tensor over anchors (K, ...) at one layer: the interpolation of two anchors. */
function atLayer(tensor, layer, depth) {
  const size = tensor.shape.slice(1).reduce((a, b) => a * b);
  const steps = data.depth_rule === "l/L" ? depth : Math.max(depth - 1, 1);
  const position = (layer * (tensor.shape[0] - 1)) / steps;
  const k = Math.floor(position);
  const next = Math.min(k + 1, tensor.shape[0] - 1);
  const f = position - k;
  return Float32Array.from({ length: size }, (_, i) => {
    const at = (anchor) => values[tensor.offset + anchor * size + i];
    return (1 - f) * at(k) + f * at(next);
  });
}

/** The sum of templates times the scalers of one block: (t, t). */
function block(level, part, scalers, row, col) {
  const { bank, templates } = level.parts[part];
  const [n, bankRows, bankCols] = bank.shape.slice(1);
  const area = data.template_size ** 2;
  const sum = new Float32Array(area);
  for (let m = 0; m < n; m++) {
    const scaler = scalers[(m * bankRows + row) * bankCols + col];
    const from = templates.offset + m * area;
    for (let i = 0; i < area; i++) sum[i] += scaler * values[from + i];
  }
  return sum;
}

/** The weight of a part in one layer, row by row: the sum of Kronecker products of scalers and templates. */
function composed(part, layer, depth, width) {
  const level = levelOf(depth, width);
  const { bank, segments } = level.parts[part];
  const t = data.template_size;
  const [rows, cols] = sides(part, width);
  const [, bankRows, bankCols] = bank.shape.slice(1);
  const height = rows / segments;
  const [r, c] = [Math.ceil(height / t), Math.ceil(cols / t)];
  const ownCols = sides(part, level.bank_width)[1];
  const tile = data.kronecker === "tile";
  // A copy that would be cropped is not read: its rest could not make up for the lost part.
  const uncut = Math.floor(cols / t);
  const cropped = tile && bankCols <= uncut && cols % t !== 0 && ownCols % t === 0;
  const readRows = reading(bankRows / segments, r, false);
  const readCols = reading(bankCols, cropped ? uncut : c, true);
  const scalers = atLayer(bank, layer, depth);
  const blocks = new Map(); // of the bank: a wider model repeats them
  const weight = new Float32Array(rows * cols);
  for (let s = 0; s < segments; s++) {
    for (let a = 0; a < r; a++) {
      const row = (s * bankRows) / segments + readRows[a][0];
      for (let b = 0; b < readCols.length; b++) {
        const [col, share] = readCols[b];
        const key = row * bankCols + col;
        if (!blocks.has(key)) blocks.set(key, block(level, part, scalers, row, col));
        const sum = blocks.get(key);
        for (let i = 0; i < t; i++) {
          const whole = tile ? (s * r + a) * t + i : i * segments * r + s * r + a;
          const [segment, y] = [Math.floor(whole / (r * t)), whole % (r * t)];
          if (y >= height) continue; // segments are cropped one by one
          for (let j = 0; j < t; j++) {
            const x = tile ? b * t + j : j * c + b;
            if (x < cols) weight[(segment * height + y) * cols + x] = sum[i * t + j] * share;
          }
        }
      }
    }
  }
  return weight;
}

/** An inherited weight at a width: `rest` values of the last axis stay together with their channel. */
function resized(source, from, to, { outer, inner, input }) {
  const read = reading(from, to, input);
  const out = new Float32Array(outer * to * inner);
  for (let o = 0; o < outer; o++) {
    for (let j = 0; j < to; j++) {
      const [k, share] = read[j];
      for (let i = 0; i < inner; i++) out[(o * to + j) * inner + i] = source[(o * from + k) * inner + i] * share;
    }
  }
  return out;
}

/** All weights of a model. */
function model(depth, width) {
  const level = levelOf(depth, width);
  const hidden = (w) => Math.floor(w * data.mlp_ratio);
  const from = level.bank_width;
  const flat = (name) => {
    const { offset, shape } = level.inherited[name];
    return values.subarray(offset, offset + shape.reduce((a, b) => a * b));
  };
  const per = (name, outer, inner, input = false) => resized(flat(name), from, width, { outer, inner, input });
  const tokens = (name) => per(name, level.inherited[name].shape[1], 1); // (1, n, width)
  const ofLayer = (name, l, segments = 1, count = (w) => w) =>
    resized(atLayer(level.inherited["blocks." + name], l, depth), count(from), count(width), {
      outer: segments,
      inner: 1,
    });
  const norm = (name) => ({ weight: per(name + ".weight", 1, 1), bias: per(name + ".bias", 1, 1) });
  const layerNorm = (name, l) => ({ weight: ofLayer(name + ".weight", l), bias: ofLayer(name + ".bias", l) });
  const linear = (part, name, l, segments, count) => ({
    weight: composed(part, l, depth, width),
    bias: ofLayer(name + ".bias", l, segments, count),
  });
  return {
    width,
    patches: {
      weight: per("patch_embed.proj.weight", 1, data.channels * data.patch ** 2),
      bias: per("patch_embed.proj.bias", 1, 1),
    },
    classToken: data.class_token ? tokens("cls_token") : null,
    positions: tokens("pos_embed"),
    blocks: Array.from({ length: depth }, (_, l) => ({
      norm1: layerNorm("norm1", l),
      qkv: linear("qkv", "attn.qkv", l, 3),
      proj: linear("proj", "attn.proj", l),
      norm2: layerNorm("norm2", l),
      fc1: linear("fc1", "mlp.fc1", l, 1, hidden),
      fc2: linear("fc2", "mlp.fc2", l),
    })),
    norm: norm(data.class_token ? "norm" : "fc_norm"),
    head: { weight: per("head.weight", data.labels.length, 1, true), bias: flat("head.bias") },
  };
}

/** `x W^T + b` for rows of `x`. */
function linear(x, { weight, bias }) {
  const [outs, ins] = [bias.length, weight.length / bias.length];
  const rows = x.length / ins;
  const y = new Float32Array(rows * outs);
  for (let n = 0; n < rows; n++) {
    for (let o = 0; o < outs; o++) {
      let sum = bias[o];
      for (let i = 0; i < ins; i++) sum += x[n * ins + i] * weight[o * ins + i];
      y[n * outs + o] = sum;
    }
  }
  return y;
}

function layerNorm(x, { weight, bias }) {
  const d = weight.length;
  const y = new Float32Array(x.length);
  for (let n = 0; n < x.length; n += d) {
    const row = x.subarray(n, n + d);
    const mean = row.reduce((a, b) => a + b) / d;
    const scale = 1 / Math.sqrt(row.reduce((a, b) => a + (b - mean) ** 2, 0) / d + data.norm_eps);
    for (let i = 0; i < d; i++) y[n + i] = (row[i] - mean) * scale * weight[i] + bias[i];
  }
  return y;
}

/** GELU, its error function by formula 7.1.26 of Abramowitz and Stegun, exact to 1.5e-7. */
function gelu(x) {
  const z = Math.abs(x) / Math.SQRT2;
  const t = 1 / (1 + 0.3275911 * z);
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const erf = 1 - series * Math.exp(-z * z);
  return 0.5 * x * (1 + (x < 0 ? -erf : erf));
}

function softmax(row) {
  const most = row.reduce((a, b) => Math.max(a, b));
  const exps = row.map((v) => Math.exp(v - most));
  const sum = exps.reduce((a, b) => a + b);
  return exps.map((v) => v / sum);
}

/** Attention of all heads over queries, keys and values (n, 3 d). */
function attention(qkv, d) {
  const [n, h] = [qkv.length / (3 * d), data.head_width];
  const out = new Float32Array(n * d);
  for (let head = 0; head < d; head += h) {
    for (let q = 0; q < n; q++) {
      const scores = new Float32Array(n);
      for (let k = 0; k < n; k++) {
        let sum = 0;
        for (let i = 0; i < h; i++) sum += qkv[q * 3 * d + head + i] * qkv[k * 3 * d + d + head + i];
        scores[k] = sum / Math.sqrt(h);
      }
      softmax(scores).forEach((p, k) => {
        for (let i = 0; i < h; i++) out[q * d + head + i] += p * qkv[k * 3 * d + 2 * d + head + i];
      });
    }
  }
  return out;
}

/** Class scores of one normalised image (channels, side, side). */
function logits(net, pixels) {
  const { patch: p, image_size: side, channels } = data;
  const grid = side / p;
  const patches = [];
  for (let y = 0; y < side; y += p)
    for (let x = 0; x < side; x += p)
      for (let c = 0; c < channels; c++)
        for (let i = 0; i < p; i++) for (let j = 0; j < p; j++) patches.push(pixels[(c * side + y + i) * side + x + j]);
  const embedded = linear(Float32Array.from(patches), net.patches); // (grid², d)
  const d = net.width;
  const first = net.classToken ? 1 : 0;
  let x = new Float32Array((grid * grid + first) * d);
  if (first) x.set(net.classToken);
  x.set(embedded, first * d);
  const add = (x, y) => x.map((v, i) => v + y[i]);
  x = add(x, net.positions);
  for (const b of net.blocks) {
    x = add(x, linear(attention(linear(layerNorm(x, b.norm1), b.qkv), d), b.proj));
    x = add(x, linear(linear(layerNorm(x, b.norm2), b.fc1).map(gelu), b.fc2));
  }
  if (first) return linear(layerNorm(x.slice(0, d), net.norm), net.head);
  const mean = new Float32Array(d);
  x.forEach((v, i) => (mean[i % d] += v / (grid * grid)));
  return linear(layerNorm(mean, net.norm), net.head);
}

/** The normalised pixels of a picture, its middle square resized by the browser. */
function pixelsOf(picture) {
  const side = data.image_size;
  const canvas = document.getElementById("composer-image");
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const square = Math.min(picture.width, picture.height) * data.crop_pct;
  const [left, top] = [(picture.width - square) / 2, (picture.height - square) / 2];
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, left, top, square, square, 0, 0, side, side);
  const rgba = context.getImageData(0, 0, side, side).data;
  const of = (c, i) =>
    data.channels === 1 ? 0.299 * rgba[4 * i] + 0.587 * rgba[4 * i + 1] + 0.114 * rgba[4 * i + 2] : rgba[4 * i + c];
  return Float32Array.from({ length: data.channels * side * side }, (_, i) => {
    const c = Math.floor(i / (side * side));
    return (of(c, i % (side * side)) / 255 - data.mean[c]) / data.std[c];
  });
}

/** Blue below 0, white at 0, red above. */
function colour(value) {
  const fade = Math.round(255 * (1 - Math.min(Math.abs(value), 1)));
  return value < 0 ? [fade, fade, 255] : [255, fade, fade];
}

/** A matrix as pixels, over its scale of colours. */
function drawing(name, matrix, rows, cols) {
  const largest = matrix.reduce((most, w) => Math.max(most, Math.abs(w)), 1e-12);
  const canvas = document.createElement("canvas");
  canvas.width = cols;
  canvas.height = rows;
  const image = canvas.getContext("2d").createImageData(cols, rows);
  matrix.forEach((w, i) => image.data.set([...colour(w / largest), 255], 4 * i));
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.setAttribute("aria-label", name);
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const bound = largest.toPrecision(2);
  caption.append(name, document.createElement("br"), `−${bound} … ${bound}`);
  figure.append(canvas, caption);
  return figure;
}

/** The templates that weigh most in a part of a layer, times their scalers, and the sum of all. */
function terms(part, layer, depth, width) {
  const level = levelOf(depth, width);
  const { bank, templates } = level.parts[part];
  const [n, rows, cols] = bank.shape.slice(1);
  const [t, scalers] = [data.template_size, atLayer(bank, layer, depth)];
  const norm = (xs) => Math.sqrt(xs.reduce((sum, v) => sum + v * v, 0));
  const term = (m) => {
    const s = scalers.subarray(m * rows * cols, (m + 1) * rows * cols);
    const from = templates.offset + m * t * t;
    const template = values.subarray(from, from + t * t);
    return { m, s, template, weight: norm(s) * norm(template) };
  };
  const all = Array.from({ length: n }, (_, m) => term(m)).sort((a, b) => b.weight - a.weight);
  const shown = all.slice(0, 3);
  const sign = (text) => Object.assign(document.createElement("span"), { className: "sign", textContent: text });
  const out = [];
  for (const { m, s, template } of shown) {
    if (out.length) out.push(sign("+"));
    out.push(drawing(`scalers ${m}`, s, rows, cols), sign("⊗"), drawing(`template ${m}`, template, t, t));
  }
  if (n > shown.length) out.push(sign(`+ ${n - shown.length} more`));
  const [r, c] = sides(part, width);
  out.push(sign("="), drawing(`${part}, ${r} x ${c}`, composed(part, layer, depth, width), r, c));
  return out;
}

/** The recorded accuracies over parameters, a line for each width, and the chosen size. */
function curve(svg, size) {
  const [w, h, left, bottom] = [640, 260, 48, 36];
  const xs = [...data.recorded.map((r) => r.parameters), size.parameters].map(Math.log10);
  const ys = data.recorded.map((r) => 100 * r.top1);
  const span = (v) => [Math.min(...v), Math.max(...v)];
  const [[x0, x1], [y0, y1]] = [span(xs), span(ys)];
  const pad = Math.max((y1 - y0) * 0.2, 0.5);
  const x = (parameters) => left + ((Math.log10(parameters) - x0) / Math.max(x1 - x0, 0.1)) * (w - left - 24);
  const y = (top1) => h - bottom - ((100 * top1 - y0 + pad) / (y1 - y0 + 2 * pad)) * (h - bottom - 12);
  const text = (at, top, label, anchor = "middle") =>
    `<text x="${at}" y="${top}" text-anchor="${anchor}">${label}</text>`;
  let body = "";
  for (const value of [y0, (y0 + y1) / 2, y1]) {
    const at = y(value / 100);
    body += `<path class="grid" d="M${left} ${at}H${w - 20}"/>${text(left - 6, at + 4, value.toFixed(1), "end")}`;
  }
  for (const parameters of new Set([10 ** x0, 10 ** ((x0 + x1) / 2), 10 ** x1]))
    body += text(x(parameters), h - 16, short(Math.round(parameters)));
  for (const of of new Set(data.recorded.map((r) => r.width))) {
    const line = data.recorded.filter((r) => r.width === of).sort((a, b) => a.depth - b.depth);
    const points = line.map((r) => `${x(r.parameters)} ${y(r.top1)}`);
    const first = line[0];
    body += `<path class="line" d="M${points.join("L")}"/>${text(x(first.parameters) + 8, y(first.top1) + 12, "width " + of, "start")}`;
    for (const r of line) body += `<circle class="dot" cx="${x(r.parameters)}" cy="${y(r.top1)}" r="3"/>`;
  }
  const at = x(size.parameters);
  body += `<path class="chosen" d="M${at} 8V${h - bottom}"/>`;
  if (size.top1 !== null) body += `<circle class="chosen" cx="${at}" cy="${y(size.top1)}" r="6"/>`;
  svg.innerHTML = body + text((left + w - 20) / 2, h - 1, "parameters") + text(4, 12, "top-1 in %", "start");
}

const short = (n) => Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 }).format(n);

function start() {
  const field = (name) => document.getElementById("composer-" + name);
  let pixels = null;
  function chosen() {
    const at = Number(field("width").value);
    const depth = Number(field("depth").value);
    return { depth, width: data.widths[at], size: data.sizes[depth - 1][at] };
  }
  function show() {
    const { depth, width, size } = chosen();
    field("layer").max = depth;
    const layer = Math.min(Number(field("layer").value), depth);
    for (const [name, value] of Object.entries({ depth, width, layer })) field(name + "-value").textContent = value;
    const expected = size.top1 === null ? "not measured" : `${(100 * size.top1).toFixed(1)} %`;
    const facts = { parameters: short(size.parameters), macs: short(size.multiply_adds), top1: expected };
    for (const [name, value] of Object.entries(facts)) field(name).textContent = value;
    field("note").textContent = size.note;
    field("command").textContent = `wave expand ${data.name} --depth ${depth} --width ${width}`;
    if (data.recorded.length) curve(field("curve"), size);
    if (values.length) field("terms").replaceChildren(...terms(field("part").value, layer - 1, depth, width));
  }
  function classify() {
    if (!pixels) return;
    const { depth, width } = chosen();
    const began = performance.now();
    const scores = Array.from(softmax(logits(model(depth, width), pixels)));
    const best = scores.map((p, i) => [p, data.labels[i]]).sort((a, b) => b[0] - a[0]);
    const row = ([p, label]) => {
      const item = document.createElement("li");
      const bar = Object.assign(document.createElement("meter"), { value: p });
      item.append(bar, ` ${(100 * p).toFixed(1)} % ${label}`);
      return item;
    };
    field("classes").replaceChildren(...best.slice(0, 5).map(row));
    const spent = Math.round(performance.now() - began);
    field("made").textContent = `${depth} layers, width ${width}: made and run here in ${spent} ms`;
  }
  for (const name of ["depth", "width", "layer", "part"]) field(name).addEventListener("input", show);
  for (const name of ["depth", "width"]) field(name).addEventListener("change", classify);
  field("copy").addEventListener("click", () => navigator.clipboard?.writeText(field("command").textContent));
  field("file")?.addEventListener("change", async (event) => {
    const [file] = event.target.files;
    if (!file) return;
    field("image").hidden = false;
    try {
      pixels = pixelsOf(await createImageBitmap(file));
      classify();
    } catch {
      field("made").textContent = `${file.name} is not an image that this browser can read`;
    }
  });
  show();
}

if (document.getElementById("composer-depth")) start();
