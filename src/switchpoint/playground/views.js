/**
 * The five views. Each has
 *   about(scene): [what was found, what one sees], two sentences or more;
 *   height(scene) and draw(plot, scene);
 *   rows(scene, t): what the tip shows at slot t, as [label, text, name of a color].
 * A scene is { model, settings, cursor, caret, colors }.
 */
import { triangle } from "./priors.js";
import { roundTicks, shortNumber } from "./plot.js";

/** The predictors in the order of the legend; lines differ in color and in dashes. */
export const PREDICTORS = {
  ptw: { label: "PTW", dash: [], about: "exact, for switches of a binary tree" },
  lin: { label: "LIN", dash: [7, 3], about: "exact, hazard 1/(2r) after r" },
  geometric: { label: "Geometric", dash: [], about: "exact, constant hazard" },
  kt: { label: "KT", dash: [2, 3], about: "one segment, no switch" },
  oracle: { label: "KT Oracle", dash: [1, 3, 5, 3], about: "knows the switches" },
  rnn: { label: "RNN", dash: [9, 3, 2, 3], about: "trained on PTW, 116,226 weights" },
  lstm: { label: "LSTM", dash: [4, 2], about: "trained on PTW, 315,906 weights" },
};

/** The predictors whose lines are drawn, in the order of drawing. */
export function shownPredictors({ model, settings }) {
  return model.known.filter((name) => !settings.hidden.includes(name)).reverse();
}

const isBits = ({ model }) => model.sequence.kind === "bits";
const middle = (plot, t) => plot.x(t) + plot.slot / 2;
const label = (name) => PREDICTORS[name].label;
const style = (name, { colors }) => ({ color: colors[name], dash: PREDICTORS[name].dash });
const switchesShown = ({ model, settings }) =>
  settings.revealed && model.sequence.switches ? model.sequence.switches : [];

/** A probability in words. */
export function percent(chance) {
  if (chance > 0 && chance < 0.01) return "<1%";
  if (chance < 1 && chance > 0.99) return ">99%";
  return `${Math.round(100 * chance)}%`;
}

/** The last slot for which a predictor's prediction is current. */
function lastPrediction(model, name) {
  const done = model.isComplete(name) ? model.length + 1 : model.networks[name].done;
  return Number.isNaN(model.predictors[name].prediction[model.length]) ? done - 2 : done - 1;
}

const strip = {
  about(scene) {
    if (scene.model.length === 0) {
      return ["The strip is empty.", "Type 0 or 1, click, paste a sequence, or draw one."];
    }
    const how = isBits(scene)
      ? "Click a bit to flip it, drag to paint, type 0 and 1, or paste; the slot at the end adds one."
      : "Click or drag to move values, paste numbers; the slot at the end adds one.";
    const isHidden = scene.model.sequence.switches && !scene.settings.revealed;
    return [how, isHidden ? "Can you guess where its rules change, before you reveal it?" : ""];
  },

  height: (scene) => (isBits(scene) ? 96 : 180),

  draw(plot, scene) {
    const { values, range } = scene.model.sequence;
    const { colors, model } = scene;
    plot.setRange(...(range ?? [0, 1]));
    plot.drawRows(range ? roundTicks(...range) : [[0, "0"], [1, "1"]]);
    plot.drawCursor(scene.cursor);
    if (range) drawValues(plot, values, colors.ink);
    else drawBits(plot, values, colors);
    if (model.length < plot.count) drawNextSlot(plot, model.length, colors);
    if (model.length === 0) plot.drawNote("← the first observation");
    plot.drawSwitches(switchesShown(scene));
    plot.drawPositions();
    drawCaret(plot, scene.caret, colors.accent);
  },

  rows(scene, t) {
    const { values, kind } = scene.model.sequence;
    if (t >= values.length) return [["next", "not observed yet"]];
    return [[kind === "bits" ? "bit" : "value", shortNumber(values[t])]];
  },
};

/** Ones in the upper half and zeros in the lower half. */
function drawBits(plot, values, colors) {
  const { context, slot } = plot;
  const gap = slot > 5 ? 1 : slot > 2.5 ? 0.5 : 0;
  const half = (plot.bottom - plot.top) / 2;
  for (const bit of [1, 0]) {
    context.fillStyle = bit ? colors.one : colors.zero;
    context.beginPath();
    values.forEach((value, t) => {
      if (value !== bit) return;
      const radius = Math.min(4, slot / 5);
      context.roundRect(plot.x(t) + gap / 2, plot.top + (bit ? 0 : half), slot - gap, half, radius);
    });
    context.fill();
  }
}

function drawValues(plot, values, color) {
  const points = values.map((value, t) => [middle(plot, t), plot.y(value)]);
  plot.drawLine(points, { color: plot.colors.line, width: 1 });
  const radius = Math.min(3, Math.max(1.2, plot.slot / 3));
  for (const [x, y] of points) plot.drawDot(x, y, radius, color);
}

function drawNextSlot(plot, t, colors) {
  const { context, slot } = plot;
  context.strokeStyle = colors.soft;
  context.setLineDash([2, 2]);
  context.strokeRect(plot.x(t) + 1.5, plot.top + 0.5, Math.max(2, slot - 2), plot.bottom - plot.top - 1);
  context.setLineDash([]);
}

/** A triangle below the slot that typing changes. */
function drawCaret(plot, t, color) {
  const { context } = plot;
  const [x, y] = [middle(plot, t), plot.bottom + 1];
  context.fillStyle = color;
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - 4, y + 6);
  context.lineTo(x + 4, y + 6);
  context.fill();
}

const predictions = {
  about(scene) {
    const { model, settings } = scene;
    const what = isBits(scene)
      ? "Each line is the probability of a 1, computed before the bit was seen; marks above and below are the bits."
      : "Each line is the value expected before it was seen; dots are the values.";
    if (!isBits(scene)) {
      const next = model.posterior.prediction[model.length];
      return [Number.isNaN(next) ? "" : `${label(settings.posterior)} expects ${shortNumber(next)} next.`, what];
    }
    if (model.length < 2 || !model.predictors.lstm || !model.isComplete("lstm")) return ["", what];
    const apart = meanDistance(model.predictors.lstm, model.laws.ptw, model.length);
    const points = (100 * apart).toFixed(1);
    return [`The LSTM was trained on PTW sequences: it is ${points} percentage points off PTW on average.`, what];
  },

  height: () => 210,

  draw(plot, scene) {
    const { model, colors } = scene;
    const { values, range } = model.sequence;
    if (range) plot.setRange(...range);
    else plot.setRange(-0.06, 1.06);
    plot.drawRows(range ? roundTicks(...range) : [[0, "0%"], [0.5, "50%"], [1, "100%"]]);
    plot.drawCursor(scene.cursor);
    if (range) drawValues(plot, values, colors.soft);
    else drawMarks(plot, values, colors);
    plot.drawSwitches(switchesShown(scene));
    for (const name of shownPredictors(scene)) {
      const { prediction } = model.predictors[name];
      const last = lastPrediction(model, name);
      const points = Array.from({ length: last + 1 }, (_, t) => [
        middle(plot, t),
        plot.y(prediction[t]),
      ]);
      plot.drawLine(points, style(name, scene));
      if (last === model.length) plot.drawDot(...points[last], 3, colors[name]);
    }
    plot.drawPositions();
  },

  rows(scene, t) {
    const { model } = scene;
    const text = isBits(scene) ? (p) => p.toFixed(3) : shortNumber;
    return shownPredictors(scene)
      .reverse()
      .filter((name) => t <= lastPrediction(model, name))
      .map((name) => [label(name), text(model.predictors[name].prediction[t]), name]);
  },
};

/** The mean difference of two predictors' probabilities. */
function meanDistance(one, other, length) {
  let total = 0;
  for (let t = 0; t < length; t++) total += Math.abs(one.prediction[t] - other.prediction[t]);
  return total / length;
}

/** The bits as marks beyond 0% and 100%. */
function drawMarks(plot, values, colors) {
  const { context, slot } = plot;
  const width = Math.max(1, slot * 0.6);
  context.fillStyle = colors.soft;
  values.forEach((bit, t) => {
    context.fillRect(middle(plot, t) - width / 2, plot.y(bit ? 1.06 : -0.03), width, 4);
  });
}

const switches = {
  about(scene) {
    const { model, settings } = scene;
    const weak = isBits(scene) ? ", and a single bit is weak evidence" : "";
    const what = `Filled: given the whole sequence, under ${label(settings.posterior)}. Line: at the moment the observation is seen${weak}.`;
    if (model.length < 2) return ["There is no place for a switch yet.", what];
    const best = argmax(model.posterior.smoothed, model.length);
    const chance = model.posterior.smoothed[best];
    return [`In hindsight, a switch is most likely at ${best} (${percent(chance)}).`, what];
  },

  height: () => 140,

  draw(plot, scene) {
    const { model, colors } = scene;
    const { smoothed, filtered } = model.posterior;
    const highest = Math.max(...smoothed.subarray(0, model.length), ...filtered.subarray(0, model.length), 0.05);
    const top = [0.1, 0.2, 0.5, 1].find((each) => each >= highest) ?? 1;
    plot.setRange(0, top);
    plot.drawRows([0, top / 2, top].map((each) => [each, `${Math.round(100 * each)}%`]));
    plot.drawCursor(scene.cursor);
    plot.drawSwitches(switchesShown(scene));
    plot.context.fillStyle = colors.hindsight;
    for (let t = 0; t < model.length; t++) {
      const y = plot.y(smoothed[t]);
      plot.context.fillRect(plot.x(t), y, Math.max(1, plot.slot - (plot.slot > 5 ? 1 : 0)), plot.bottom - y);
    }
    const points = Array.from({ length: model.length }, (_, t) => [middle(plot, t), plot.y(filtered[t])]);
    plot.drawLine(points, { color: colors.ink, width: 1.25 });
    plot.drawPositions();
  },

  rows({ model }, t) {
    if (t >= model.length) return [["next", "not observed yet"]];
    return [
      ["in hindsight", model.posterior.smoothed[t].toFixed(3), "hindsight"],
      ["when seen", model.posterior.filtered[t].toFixed(3), "ink"],
    ];
  },
};

/** The most probable starts of the segment of x_t, given the observations up to it. */
function likelyStarts({ posterior }, t, count) {
  const row = triangle(t);
  const starts = Array.from({ length: t + 1 }, (_, s) => [s, posterior.starts[row + s]]);
  return starts.sort((one, two) => two[1] - one[1]).slice(0, count);
}

const starts = {
  about(scene) {
    const { model, settings } = scene;
    const what = `Each column is the belief under ${label(settings.posterior)}, at that time, about where its segment began: a streak to the right is a start that the data keep supporting.`;
    if (model.length === 0) return ["", what];
    const [[start, chance]] = likelyStarts(model, model.length - 1, 1);
    return [`The last segment most likely began at ${start} (${percent(chance)}).`, what];
  },

  height: () => 250,

  draw(plot, scene) {
    const { model } = scene;
    plot.setRange(0, plot.count);
    if (model.length > 0) {
      const image = heatMap(plot, model, scene.colors);
      const width = plot.x(model.length) - plot.left;
      plot.context.imageSmoothingEnabled = false;
      plot.context.drawImage(image, plot.left, plot.y(model.length), width, plot.bottom - plot.y(model.length));
    }
    const step = plot.positionStep(26, (plot.bottom - plot.top) / plot.count);
    const rows = Array.from({ length: Math.ceil(plot.count / step) }, (_, i) => [i * step, String(i * step)]);
    plot.drawRows(rows);
    plot.drawCursor(scene.cursor);
    plot.drawSwitches(switchesShown(scene));
    plot.drawPositions();
  },

  rows({ model }, t) {
    if (t >= model.length) return [["next", "not observed yet"]];
    return likelyStarts(model, t, 3).map(([s, chance]) => [`began at ${s}`, chance.toFixed(3)]);
  },
};

/** P(start s | x_<=t) as a picture: time to the right, starts upwards, the square root as color. */
function heatMap(plot, model, colors) {
  const { length, posterior } = model;
  const columns = Math.min(length, Math.round(plot.slot * length * plot.ratio));
  const rows = Math.min(length, Math.round((plot.bottom - plot.top) * plot.ratio));
  const highest = new Float64Array(columns * rows).fill(-1); // of the cells under each pixel
  for (let t = 0; t < length; t++) {
    const column = Math.floor((t * columns) / length);
    for (let s = 0; s <= t; s++) {
      const pixel = (rows - 1 - Math.floor((s * rows) / length)) * columns + column;
      const chance = posterior.starts[triangle(t) + s];
      if (chance > highest[pixel]) highest[pixel] = chance;
    }
  }
  const image = new ImageData(columns, rows);
  const words = new Uint32Array(image.data.buffer);
  highest.forEach((chance, pixel) => {
    if (chance >= 0) words[pixel] = colors.heat[Math.round(255 * Math.sqrt(chance))];
  });
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

const code = {
  about(scene) {
    const { model } = scene;
    const unit = isBits(scene) ? "bits" : "bits, up to the digits of the values";
    const what = "The better the predictions, the slower a line climbs.";
    const [winner, second] = model.ranking(model.length);
    if (model.length === 0 || !winner) return ["", what];
    const shortest = model.predictors[winner].bits[model.length];
    const found = `${label(winner)} has the shortest code, ${shortest.toFixed(1)} ${unit}; next is ${label(second)}, ${gap(model, second, shortest)} longer.`;
    const rest = winner === "kt" ? "" : ` KT, which never expects a switch, needs ${gap(model, "kt", shortest)} more.`;
    return [found, what + rest];
  },

  height: () => 210,

  draw(plot, scene) {
    const { model } = scene;
    const names = shownPredictors(scene);
    const ends = names.map((name) => model.predictors[name].bits.subarray(0, lastBits(model, name) + 1));
    const high = Math.max(...ends.map((bits) => Math.max(...bits)), 1);
    const low = Math.min(...ends.map((bits) => Math.min(...bits)), 0);
    plot.setRange(low, high);
    plot.drawRows(roundTicks(low, high));
    plot.drawCursor(scene.cursor);
    plot.drawSwitches(switchesShown(scene));
    names.forEach((name, i) => {
      const points = Array.from(ends[i], (bits, t) => [plot.x(t), plot.y(bits)]);
      plot.drawLine(points, style(name, scene));
    });
    plot.drawPositions();
  },

  rows(scene, t) {
    const { model } = scene;
    const count = Math.min(t + 1, model.length);
    const shown = shownPredictors(scene).filter((name) => count <= lastBits(model, name));
    const bits = (name) => model.predictors[name].bits[count];
    return shown
      .sort((one, two) => bits(one) - bits(two))
      .map((name) => [label(name), `${bits(name).toFixed(2)} bits`, name]);
  },
};

/** The number of observations whose code length by a predictor is current. */
const lastBits = (model, name) =>
  model.isComplete(name) ? model.length : model.networks[name].done - 1;

const gap = (model, name, shortest) =>
  `${(model.predictors[name].bits[model.length] - shortest).toFixed(1)} bits`;

function argmax(numbers, length) {
  let best = 0;
  for (let i = 1; i < length; i++) if (numbers[i] > numbers[best]) best = i;
  return best;
}

/** By the ids of their sections, in the order of the page. */
export const VIEWS = { strip, predictions, switches, starts, code };
