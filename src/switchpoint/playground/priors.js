/**
 * Switching-point priors, each stated by its hazard h(s, r) = P(L = r | s, L >= r): the probability
 * that a segment which began at s ends after r observations, given that it lasted that long.
 */

/** The most observations that the page takes. */
export const MAX_LENGTH = 512;

/** The number of entries before row t of a triangular table, whose row t has entries 0..t. */
export const triangle = (t) => (t * (t + 1)) / 2;

/**
 * Partition Tree Weighting: every node of a binary tree over time splits with probability `split`.
 *
 * A segment from s has 2^(v - j) observations, where v is `depth` at s = 0 and otherwise the number
 * of trailing zero bits of s. Sequences have at most 2^depth observations.
 */
export function ptw(depth, split = 0.5) {
  function hazard(start, run) {
    const level = 31 - Math.clz32(run);
    if (run !== 1 << level) return 0;
    const height = start === 0 ? depth : 31 - Math.clz32(start & -start);
    const splits = height - level;
    if (splits <= 0) return 1;
    if (level === 0) return split ** splits;
    return ((1 - split) * split ** splits) / (1 - split ** (splits + 1));
  }
  return { hazard, limit: 2 ** depth };
}

/** Willems' LIN: the hazard falls with the length so far, h(r) = 1 / (2 r). */
export const lin = () => ({ hazard: (start, run) => 0.5 / run, limit: Infinity });

/** Geometric lengths: a segment ends after every observation with the same probability. */
export const geometric = (rate) => ({ hazard: () => rate, limit: Infinity });

/** h(s, t - s) for 0 <= s < t <= `length`, at `triangle(t) + s`. */
export function hazardTable(prior, length = MAX_LENGTH) {
  const table = new Float64Array(triangle(length + 1));
  for (let t = 1; t <= length; t++) {
    const row = triangle(t);
    for (let s = 0; s < t; s++) table[row + s] = prior.hazard(s, t - s);
  }
  return table;
}
