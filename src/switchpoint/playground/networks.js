/**
 * Trained recurrent networks, which read a start token and then the bits. Weights are stored with
 * 16 bits; everything is computed with 64.
 */
import { MAX_LENGTH } from "./priors.js";

const START = 2; // the token before the first bit

/** The numbers of a base64 string of little-endian half-precision floats. */
export function halves(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => half(view.getUint16(2 * i, true)));
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

const AT_ONCE = 8; // rows of a matrix that a product adds in one pass

/** A weight matrix, inputs by outputs. */
class Matrix {
  constructor({ shape: [inputs, outputs], data }) {
    this.outputs = outputs;
    this.weights = halves(data);
    this.factors = new Float64Array(inputs + AT_ONCE); // the inputs that are not 0
    this.rows = new Uint32Array(inputs + AT_ONCE); // and where their rows begin
  }

  /** out += x W, over the inputs that are not 0: ReLU units often are. */
  addProduct(x, out) {
    const { outputs, weights, factors, rows } = this;
    let count = 0;
    for (let i = 0; i < x.length; i++) {
      if (x[i] === 0) continue;
      factors[count] = x[i];
      rows[count++] = i * outputs;
    }
    factors.fill(0, count, count + AT_ONCE);
    for (let k = 0; k < count; k += AT_ONCE) {
      // One by one, because an iterator would cost as much as a tenth of the product.
      const [f0, f1, f2, f3] = [factors[k], factors[k + 1], factors[k + 2], factors[k + 3]];
      const [f4, f5, f6, f7] = [factors[k + 4], factors[k + 5], factors[k + 6], factors[k + 7]];
      const [r0, r1, r2, r3] = [rows[k], rows[k + 1], rows[k + 2], rows[k + 3]];
      const [r4, r5, r6, r7] = [rows[k + 4], rows[k + 5], rows[k + 6], rows[k + 7]];
      for (let o = 0; o < outputs; o++) {
        const first = f0 * weights[r0 + o] + f1 * weights[r1 + o];
        const second = f2 * weights[r2 + o] + f3 * weights[r3 + o];
        const third = f4 * weights[r4 + o] + f5 * weights[r5 + o];
        const fourth = f6 * weights[r6 + o] + f7 * weights[r7 + o];
        out[o] += first + second + (third + fourth);
      }
    }
  }
}

/**
 * A network of the zoo: an RNN or an LSTM of one layer, and a readout of dense layers.
 *
 * `weights` has the arrays of the Python network by their paths. The memory after every token is
 * kept, so that an edit costs only the steps after it.
 *
 * prediction, bits: as of `Recursion`. `done` is the number of tokens read; entries up to
 * prediction[done - 1] and bits[done - 1] are current.
 */
export class Network {
  constructor({ units, hidden, weights }) {
    this.units = units;
    this.hidden = hidden;
    this.table = halves(weights["input.weight"].data); // the input of each token
    this.bias = halves(weights["input.bias"].data);
    this.width = this.bias.length;
    this.feedback = new Matrix(weights["cell.weight"]);
    this.readout = [];
    for (let i = 0; `output.layers.${i}.weight` in weights; i++) {
      this.readout.push({
        matrix: new Matrix(weights[`output.layers.${i}.weight`]),
        bias: halves(weights[`output.layers.${i}.bias`].data),
      });
    }
    this.outputs = new Float64Array((MAX_LENGTH + 2) * hidden); // row t: before token t
    this.cells = new Float64Array(units === "lstm" ? (MAX_LENGTH + 2) * hidden : 0);
    this.prediction = new Float64Array(MAX_LENGTH + 1);
    this.bits = new Float64Array(MAX_LENGTH + 1);
    this.done = 0;
  }

  /** Forget what depends on x_from and later. */
  rewind(from) {
    this.done = Math.min(this.done, from + 1);
  }

  /** Read on until `deadline`, in milliseconds; return whether all bits have been read. */
  advance(values, deadline = Infinity) {
    while (this.done <= values.length) {
      if (performance.now() > deadline) return false;
      const t = this.done;
      this.step(t, t === 0 ? START : values[t - 1]);
      if (t > 0) {
        const one = this.prediction[t - 1];
        this.bits[t] = this.bits[t - 1] - Math.log2(values[t - 1] ? one : 1 - one);
      }
      this.prediction[t] = sigmoid(this.logit(t + 1));
      this.done += 1;
    }
    return true;
  }

  /** The memory after token t. */
  step(t, token) {
    const { hidden, width, table, bias } = this;
    const sums = new Float64Array(width);
    for (let i = 0; i < width; i++) sums[i] = table[token * width + i] + bias[i];
    const before = this.outputs.subarray(t * hidden, (t + 1) * hidden);
    const after = this.outputs.subarray((t + 1) * hidden, (t + 2) * hidden);
    this.feedback.addProduct(before, sums);
    if (this.units === "rnn") {
      for (let i = 0; i < hidden; i++) after[i] = Math.max(0, sums[i]);
      return;
    }
    for (let i = 0; i < hidden; i++) {
      const kept = sigmoid(sums[hidden + i] + 1) * this.cells[t * hidden + i];
      const cell = kept + sigmoid(sums[i]) * Math.tanh(sums[2 * hidden + i]);
      this.cells[(t + 1) * hidden + i] = cell;
      after[i] = sigmoid(sums[3 * hidden + i]) * Math.tanh(cell);
    }
  }

  /** The log-odds of a one, by row t of the memory. */
  logit(t) {
    let x = this.outputs.subarray(t * this.hidden, (t + 1) * this.hidden);
    this.readout.forEach(({ matrix, bias }, layer) => {
      const sums = Float64Array.from(bias);
      matrix.addProduct(x, sums);
      const last = layer === this.readout.length - 1;
      x = last ? sums : sums.map((sum) => Math.max(0, sum));
    });
    return x[1] - x[0];
  }
}

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
