// Reads questions from standard input, answers them with the modules of the playground, and writes
// the answers to standard output, as JSON. The directory of the modules is the argument.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const modules = pathToFileURL(`${process.argv[2]}/`);
const load = (name) => import(new URL(name, modules));
const { Model } = await load("model.js");
const { sequence, parse } = await load("sequence.js");
const { decode, encode } = await load("link.js");
const { draw } = await load("sampling.js");
const { ptw, lin, geometric } = await load("priors.js");

const LAWS = ["ptw", "lin", "geometric"];
const { networks, cases, edits, texts, links, draws } = JSON.parse(readFileSync(0));
const shared = new Model(networks ?? {}); // of all cases, each an edit of the last

function numbers({ kind, values, switches, range, hazard }, model = shared) {
  const shown = sequence(kind, values, switches, range);
  for (const posterior of LAWS) model.update(shown, { hazard, posterior });
  model.advanceNetworks();
  return Object.fromEntries(
    model.known.map((name) => {
      const { prediction, bits, filtered, smoothed, starts } = model.predictors[name];
      const length = values.length;
      const part = (numbers, end) => numbers && Array.from(numbers.subarray(0, end));
      return [
        name,
        {
          prediction: part(prediction, length + 1),
          bits: part(bits, length + 1),
          filtered: part(filtered, length),
          smoothed: part(smoothed, length),
          starts: part(starts, (length * (length + 1)) / 2),
        },
      ];
    }),
  );
}

/** mulberry32: uniform numbers from a seed. */
function generator(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let word = Math.imul(state ^ (state >>> 15), 1 | state);
    word = (word + Math.imul(word ^ (word >>> 7), 61 | word)) ^ word;
    return ((word ^ (word >>> 14)) >>> 0) / 2 ** 32;
  };
}

const answer = {};
if (cases) answer.cases = cases.map((each) => numbers(each));
if (edits) {
  // Whether a model that was edited has the numbers of one that was not.
  answer.edits = edits.map((each) => {
    const fresh = numbers(each, new Model(networks ?? {}));
    return JSON.stringify(numbers(each)) === JSON.stringify(fresh);
  });
}
if (texts) answer.texts = texts.map(parse);
if (links) {
  answer.links = links.map((link) => decode(link));
  answer.again = answer.links.map((state) => state.sequence && encode(state.sequence, state.settings));
}
if (draws) {
  const priors = { ptw: ptw(8), lin: lin(), geometric: geometric(0.05) };
  answer.draws = draws.map(({ prior, length, seed, count, parameters }) => {
    const random = generator(seed);
    return Array.from({ length: count }, () => draw(priors[prior], length, random, parameters));
  });
}
process.stdout.write(JSON.stringify(answer));
