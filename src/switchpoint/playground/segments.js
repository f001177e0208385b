/**
 * Segment models: what a segment that began at s predicts at time t. The answer depends only on the
 * observations x_s..x_(t-1), so one table of it serves every prior.
 */
import { MAX_LENGTH, triangle } from "./priors.js";

/**
 * The predictions of the segment models, at `triangle(t) + s` for a segment from s <= t.
 *
 * mean: the expectation of x_t given x_s..x_(t-1); for bits P(x_t = 1). Row t = length forecasts.
 * density: p(x_t | x_s..x_(t-1)), divided by the largest of its row, whose logarithm is `shift[t]`,
 *   so that no outlier makes a whole row underflow.
 */
export class Evidence {
  constructor() {
    this.mean = new Float64Array(triangle(MAX_LENGTH + 1));
    this.density = new Float64Array(triangle(MAX_LENGTH + 1));
    this.shift = new Float64Array(MAX_LENGTH);
  }
}

/*
 * A segment model is a function (evidence, values, from) that recomputes the rows from `from` on,
 * after a change of x_from or of later observations.
 */

/** Bits whose probability is drawn from Beta(1/2, 1/2) for each segment: the KT estimator. */
export function bernoulli(evidence, values, from) {
  const { mean, density } = evidence;
  const ones = new Float64Array(values.length + 1); // before each time
  values.forEach((x, t) => (ones[t + 1] = ones[t] + x));
  for (let t = from; t <= values.length; t++) {
    const row = triangle(t);
    for (let s = 0; s <= t; s++) {
      const one = (ones[t] - ones[s] + 0.5) / (t - s + 1);
      mean[row + s] = one;
      density[row + s] = values[t] ? one : 1 - one;
    }
    if (t < values.length) evidence.shift[t] = 0;
  }
}

/** The shape of the Gamma prior of the precision: the noise of segments differs, but not wildly. */
export const SHAPE = 3;

/**
 * Real values of unknown mean and noise: tau ~ Gamma(SHAPE, rate), mu | tau ~ N(mean, 1 / (strength
 * tau)), x | mu, tau ~ N(mu, 1 / tau). It predicts with Student's t-distribution.
 */
export function normalGamma({ mean: centre, strength, rate }) {
  return (evidence, values, from) => {
    const { mean, density, shift } = evidence;
    const ratios = gammaRatios(values.length);
    const means = new Float64Array(values.length + 1).fill(centre); // of the segment from each s
    const rates = new Float64Array(values.length + 1).fill(rate);
    for (let t = 0; t <= values.length; t++) {
      const row = triangle(t);
      let largest = -Infinity;
      for (let s = 0; s <= t; s++) {
        const run = t - s;
        const weight = strength + run;
        const gap = values[t] - means[s];
        const added = (0.5 * weight * gap * gap) / (weight + 1);
        if (t >= from) {
          mean[row + s] = means[s];
          const scale = 0.5 * Math.log(weight / (2 * Math.PI * rates[s] * (weight + 1)));
          const tail = (SHAPE + (run + 1) / 2) * Math.log1p(added / rates[s]);
          density[row + s] = ratios[run] + scale - tail;
          largest = Math.max(largest, density[row + s]);
        }
        means[s] += gap / (weight + 1);
        rates[s] += added;
      }
      if (t < from || t === values.length) continue;
      shift[t] = largest;
      for (let s = 0; s <= t; s++) density[row + s] = Math.exp(density[row + s] - largest);
    }
  };
}

/** ln Gamma(a + 1/2) / Gamma(a) at a = SHAPE + r / 2, for r = 0..length. */
function gammaRatios(length) {
  const ratios = new Float64Array(length + 1);
  ratios[0] = Math.log((15 / 16) * Math.sqrt(Math.PI)); // Gamma(3.5) / Gamma(3)
  for (let r = 0; r < length; r++) ratios[r + 1] = Math.log(SHAPE + r / 2) - ratios[r];
  return ratios;
}

/**
 * Normal-Gamma parameters for values drawn between `low` and `high`: noise of about a twentieth of
 * the range, and levels that differ by about a quarter of it.
 */
export function parametersFor([low, high]) {
  const noise = (high - low) / 20;
  return { mean: (low + high) / 2, strength: 0.04, rate: (SHAPE - 1) * noise ** 2 };
}
