/** Sequences drawn from a source: a prior of the switches, and a segment model. */
import { SHAPE } from "./segments.js";

/**
 * Draw `length` observations; `random()` is uniform on [0, 1).
 *
 * Bits have probabilities from Beta(1/2, 1/2); values have levels and noise from the Normal-Gamma
 * prior `parameters`. Returns the values and where segments begin, without the first.
 */
export function draw(prior, length, random, parameters = null) {
  const values = [];
  const switches = [];
  let segment = drawSegment(parameters, random);
  for (let t = 0, start = 0; t < length; t++) {
    if (t > 0 && random() < prior.hazard(start, t - start)) {
      start = t;
      switches.push(t);
      segment = drawSegment(parameters, random);
    }
    values.push(segment());
  }
  return { values, switches };
}

/** A function that draws the observations of one segment. */
function drawSegment(parameters, random) {
  if (!parameters) {
    const chance = Math.sin((Math.PI / 2) * random()) ** 2; // the arcsine law is Beta(1/2, 1/2)
    return () => (random() < chance ? 1 : 0);
  }
  const { mean, strength, rate } = parameters;
  let precision = 0; // Gamma distributed, as a sum of exponential numbers
  for (let i = 0; i < SHAPE; i++) precision -= Math.log(1 - random()) / rate;
  const level = mean + normal(random) / Math.sqrt(strength * precision);
  return () => level + normal(random) / Math.sqrt(precision);
}

/** A standard normal number, by Box and Muller. */
const normal = (random) =>
  Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
