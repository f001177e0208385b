/**
 * Exact prediction under any prior: the forward recursion over the start of the current segment,
 * and the backward recursion for the switches in hindsight. Both take O(n^2) for n observations.
 */
import { MAX_LENGTH, hazardTable, triangle } from "./priors.js";

const NEGLIGIBLE = 1e-290; // smaller probabilities are 0: subnormal numbers are slow

/**
 * The Bayes-optimal predictor of one prior.
 *
 * starts: P(the segment of x_t began at s | x_<=t), at `triangle(t) + s`.
 * prediction: E[x_t | x_<t], for bits P(x_t = 1 | x_<t), for t = 0..length; the last is a forecast.
 * bits: the code length -log2 p(x_0..x_(t-1)), for t = 0..length.
 * filtered, smoothed: P(a segment begins at t | x_<=t), and given all observations.
 */
export class Recursion {
  constructor(prior) {
    this.starts = new Float64Array(triangle(MAX_LENGTH + 1));
    this.totals = new Float64Array(MAX_LENGTH); // p(x_t | x_<t), on the scale of the evidence
    this.prediction = new Float64Array(MAX_LENGTH + 1);
    this.bits = new Float64Array(MAX_LENGTH + 1);
    this.filtered = new Float64Array(MAX_LENGTH);
    this.smoothed = new Float64Array(MAX_LENGTH);
    this.setPrior(prior);
  }

  /** Change the law of the segments; `update` from 0 must follow. */
  setPrior(prior) {
    this.limit = prior.limit;
    this.hazards = hazardTable(prior);
  }

  /** Recompute everything but `smoothed`, after a change of x_from or of later observations. */
  update(evidence, length, from) {
    const { starts } = this;
    const { mean, density, shift } = evidence;
    for (let t = from; t <= length; t++) {
      const row = triangle(t);
      this.extendStarts(t);
      let expected = 0;
      let total = 0;
      for (let s = 0; s <= t; s++) {
        expected += starts[row + s] * mean[row + s];
        total += starts[row + s] * density[row + s];
      }
      this.prediction[t] = t < this.limit ? expected : NaN;
      if (t === length) break;
      for (let s = 0; s <= t; s++) {
        const weight = (starts[row + s] * density[row + s]) / total;
        starts[row + s] = weight > NEGLIGIBLE ? weight : 0;
      }
      this.totals[t] = total;
      this.bits[t + 1] = this.bits[t] - (Math.log(total) + shift[t]) / Math.LN2;
      this.filtered[t] = t > 0 ? starts[row + t] : 0;
    }
  }

  /** Row t as P(the segment of x_t began at s | x_<t), from row t - 1. */
  extendStarts(t) {
    const { starts, hazards } = this;
    const row = triangle(t);
    const before = row - t;
    let switched = t > 0 ? 0 : 1;
    for (let s = 0; s < t; s++) {
      switched += starts[before + s] * hazards[row + s];
      starts[row + s] = starts[before + s] * (1 - hazards[row + s]);
    }
    starts[row + t] = switched;
  }

  /**
   * Compute `smoothed`, after `update`.
   *
   * later[s] = p(x_>t | the segment of x_t began at s, x_<=t) / p(x_>t | x_<=t), so that its product
   * with `starts` is the posterior given all observations.
   */
  smooth({ density }, length) {
    const { starts, hazards, totals, smoothed } = this;
    const later = new Float64Array(length).fill(1);
    for (let t = length - 1; t >= 0; t--) {
      const row = triangle(t);
      const next = row + t + 1;
      if (t < length - 1) {
        const fresh = density[next + t + 1] * later[t + 1];
        for (let s = 0; s <= t; s++) {
          const hazard = hazards[next + s];
          const stays = (1 - hazard) * density[next + s] * later[s];
          later[s] = starts[row + s] > 0 ? (stays + hazard * fresh) / totals[t + 1] : 0;
        }
      }
      smoothed[t] = t > 0 ? starts[row + t] * later[t] : 0;
    }
  }
}

/** The predictor that knows where segments begin; without switches it is KT, of one segment. */
export class KnownStarts {
  constructor() {
    this.prediction = new Float64Array(MAX_LENGTH + 1);
    this.bits = new Float64Array(MAX_LENGTH + 1);
  }

  update(evidence, length, switches = []) {
    const { mean, density, shift } = evidence;
    const isStart = new Set(switches);
    for (let t = 0, start = 0; t <= length; t++) {
      if (isStart.has(t)) start = t;
      const at = triangle(t) + start;
      this.prediction[t] = mean[at];
      if (t === length) break;
      this.bits[t + 1] = this.bits[t] - (Math.log(density[at]) + shift[t]) / Math.LN2;
    }
  }
}
