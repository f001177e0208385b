/** A canvas with axes, whose horizontal axis has a slot for each observation, as in every view. */

const LEFT = 42;
const RIGHT = 13;
const TOP = 10;
const BOTTOM = 22;
const FEWEST_SLOTS = 24; // so that a short sequence does not fill the width
const TICK_DISTANCE = 46;
const FONT = "11px system-ui, sans-serif";

export class Plot {
  constructor(element) {
    this.element = element;
    this.canvas = element.querySelector("canvas");
    this.context = this.canvas.getContext("2d");
    this.colors = {};
  }

  /** Clear the canvas, for `count` slots at this height in CSS pixels. */
  begin(count, height, colors) {
    const ratio = window.devicePixelRatio || 1;
    const width = this.element.clientWidth;
    const size = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== size[0] || this.canvas.height !== size[1]) {
      [this.canvas.width, this.canvas.height] = size;
      this.canvas.style.height = `${height}px`;
    }
    this.colors = colors;
    this.count = count;
    this.ratio = ratio;
    this.slot = (width - LEFT - RIGHT) / Math.max(count, FEWEST_SLOTS);
    this.left = LEFT;
    this.right = width - RIGHT;
    this.top = TOP;
    this.bottom = height - BOTTOM;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, width, height);
    this.context.font = FONT;
  }

  /** Where slot t begins. */
  x(t) {
    return LEFT + t * this.slot;
  }

  /** Let the vertical axis run from `low` to `high`. */
  setRange(low, high) {
    this.low = low;
    this.high = high;
  }

  y(value) {
    return this.bottom - ((value - this.low) / (this.high - this.low)) * (this.bottom - this.top);
  }

  /** The slot at a position in the window, and the value there on the vertical axis. */
  at(clientX, clientY) {
    const box = this.canvas.getBoundingClientRect();
    const slot = Math.floor((clientX - box.left - LEFT) / this.slot);
    const share = (this.bottom - (clientY - box.top)) / (this.bottom - this.top);
    return {
      t: Math.min(this.count - 1, Math.max(0, slot)),
      value: this.low + share * (this.high - this.low),
    };
  }

  /** Horizontal grid lines with labels, [value, label] each. */
  drawRows(ticks) {
    const { context, colors } = this;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const [value, label] of ticks) {
      const y = Math.round(this.y(value)) + 0.5;
      context.strokeStyle = colors.line;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(this.left, y);
      context.lineTo(this.right, y);
      context.stroke();
      context.fillStyle = colors.soft;
      context.fillText(label, this.left - 7, y);
    }
  }

  /** Positions below the horizontal axis: multiples of a power of two, which PTW's switches favour. */
  drawPositions() {
    const { context } = this;
    const step = this.positionStep(TICK_DISTANCE);
    context.fillStyle = this.colors.soft;
    context.textAlign = "center";
    context.textBaseline = "top";
    for (let t = 0; this.x(t) < this.right - 1; t += step) {
      context.fillText(String(t), this.x(t) + this.slot / 2, this.bottom + 7);
    }
  }

  /** The smallest power of two whose multiples are this many pixels apart. */
  positionStep(distance, slot = this.slot) {
    let step = 1;
    while (step * slot < distance) step *= 2;
    return step;
  }

  /** Vertical lines where segments begin. */
  drawSwitches(switches) {
    const { context } = this;
    context.strokeStyle = this.colors.ink;
    context.lineWidth = 1;
    context.setLineDash([3, 3]);
    context.beginPath();
    for (const t of switches) {
      const x = Math.round(this.x(t)) + 0.5;
      context.moveTo(x, this.top - 6);
      context.lineTo(x, this.bottom);
    }
    context.stroke();
    context.setLineDash([]);
  }

  /** A band over the slot that the reader looks at. */
  drawCursor(t) {
    if (t === null || t >= this.count) return;
    this.context.fillStyle = this.colors.cursor;
    const width = Math.max(2, this.slot);
    const x = this.x(t) + (this.slot - width) / 2;
    this.context.fillRect(x, this.top - 6, width, this.bottom - this.top + 6);
  }

  /** A line through points [x, y] in pixels. */
  drawLine(points, { color, dash = [], width = 1.75 }) {
    const { context } = this;
    context.strokeStyle = color;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.setLineDash(dash);
    context.beginPath();
    points.forEach(([x, y], i) => (i ? context.lineTo(x, y) : context.moveTo(x, y)));
    context.stroke();
    context.setLineDash([]);
  }

  drawDot(x, y, radius, color) {
    this.context.fillStyle = color;
    this.context.beginPath();
    this.context.arc(x, y, radius, 0, 2 * Math.PI);
    this.context.fill();
  }

  /** A sentence in an empty plot. */
  drawNote(text) {
    const { context } = this;
    context.fillStyle = this.colors.soft;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(text, this.left + 46, (this.top + this.bottom) / 2);
  }
}

/** Round numbers from low to high, about `count` of them, as [value, label]. */
export function roundTicks(low, high, count = 4) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) {
    const value = Number((i * step).toPrecision(10));
    ticks.push([value, shortNumber(value)]);
  }
  return ticks;
}

/** A number in at most four digits or so, with a true minus sign. */
export function shortNumber(value) {
  const size = Math.abs(value);
  const text =
    size >= 1e5 || (size > 0 && size < 1e-3)
      ? value.toExponential(0)
      : String(Number(value.toPrecision(4)));
  return text.replace("-", "−");
}
