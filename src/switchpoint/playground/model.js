/** All numbers of the page for one sequence, of which an edit recomputes only what depends on it. */
import { geometric, lin, ptw } from "./priors.js";
import { Evidence, bernoulli, normalGamma, parametersFor } from "./segments.js";
import { KnownStarts, Recursion } from "./recursion.js";
import { Network } from "./networks.js";
import { firstDifference } from "./sequence.js";

const DEPTHS = [8, 9]; // of PTW: the shallower tree while it holds the sequence

/**
 * predictors: by name, each with `prediction` and `bits` (see `Recursion`).
 * known: the names that have numbers for the present sequence.
 */
export class Model {
  constructor(networks = {}) {
    this.evidence = new Evidence();
    this.depth = DEPTHS[0];
    this.hazard = 0.02;
    this.laws = {
      ptw: new Recursion(ptw(this.depth)),
      lin: new Recursion(lin()),
      geometric: new Recursion(geometric(this.hazard)),
    };
    this.singles = { kt: new KnownStarts(), oracle: new KnownStarts() };
    this.networks = Object.fromEntries(
      Object.entries(networks).map(([name, network]) => [name, new Network(network)]),
    );
    this.predictors = { ...this.laws, ...this.singles, ...this.networks };
    this.sequence = null;
  }

  get length() {
    return this.sequence.values.length;
  }

  get known() {
    const bits = this.sequence.kind === "bits";
    return Object.keys(this.predictors).filter((name) => {
      if (name === "oracle") return this.sequence.switches !== null;
      return bits || !(name in this.networks);
    });
  }

  /** Show another sequence or other settings; `advanceNetworks` must follow for the networks. */
  update(sequence, { hazard, posterior }) {
    const { kind, values, switches } = sequence;
    const old = this.sequence;
    const comparable = old?.kind === kind && String(old.range) === String(sequence.range);
    const from = comparable ? firstDifference(old.values, values) : 0;
    this.sequence = sequence;
    const parameters = kind === "values" ? parametersFor(sequence.range) : null;
    const segment = parameters ? normalGamma(parameters) : bernoulli;
    segment(this.evidence, values, from);

    const depth = DEPTHS.find((each) => values.length <= 2 ** each);
    const starts = { ptw: from, lin: from, geometric: from }; // where to recompute from
    if (depth !== this.depth) {
      this.laws.ptw.setPrior(ptw(depth));
      this.depth = depth;
      starts.ptw = 0;
    }
    if (hazard !== this.hazard) {
      this.laws.geometric.setPrior(geometric(hazard));
      this.hazard = hazard;
      starts.geometric = 0;
    }
    for (const [name, law] of Object.entries(this.laws)) {
      law.update(this.evidence, values.length, starts[name]);
    }
    this.posterior = this.laws[posterior];
    this.posterior.smooth(this.evidence, values.length);
    this.singles.kt.update(this.evidence, values.length);
    this.singles.oracle.update(this.evidence, values.length, switches ?? []);
    for (const network of Object.values(this.networks)) network.rewind(from);
  }

  /** Let the networks read until `deadline`; return whether they are done. */
  advanceNetworks(deadline = Infinity) {
    if (this.sequence.kind !== "bits") return true;
    return Object.values(this.networks).every((network) =>
      network.advance(this.sequence.values, deadline),
    );
  }

  /** Whether a predictor's numbers are complete; those of a network may be on their way. */
  isComplete(name) {
    return !(name in this.networks) || this.networks[name].done > this.length;
  }

  /**
   * The names of the predictors, the shortest code of x_0..x_(t-1) first; without the oracle, which
   * has an unfair advantage.
   */
  ranking(t) {
    const names = this.known.filter((name) => name !== "oracle" && this.isComplete(name));
    return names.sort((one, two) => this.predictors[one].bits[t] - this.predictors[two].bits[t]);
  }
}
