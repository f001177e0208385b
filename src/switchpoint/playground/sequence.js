/**
 * Sequences as they are edited: immutable objects
 *   { kind: "bits" or "values", values, switches: where segments begin, or null if unknown,
 *     range: [low, high] of values, or null for bits }
 * and the ways to change one, each of which returns another.
 */
import { MAX_LENGTH } from "./priors.js";

/** A sequence, with a range that shows all values. */
export function sequence(kind, values, switches = null, range = null) {
  const shown = kind === "bits" ? null : (range ?? rangeOf(values));
  return { kind, values, switches, range: shown };
}

/** Whether a word is a number whose square is finite. */
export const isNumber = (word) =>
  /^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(word) && Math.abs(Number(word)) <= 1e100;

/** A round range around the values, with a margin. */
export function rangeOf(values) {
  if (!values.length) return [0, 10];
  let low = Math.min(...values);
  let high = Math.max(...values);
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (high - low <= 1e-9 * size) {
    const margin = Math.max(1, size / 1000);
    [low, high] = [low - margin, high + margin];
  }
  const step = 10 ** Math.floor(Math.log10((high - low) / 2));
  const round = (x) => Number(x.toPrecision(12));
  return [round(Math.floor(low / step) * step), round(Math.ceil(high / step) * step)];
}

/** A value of a range, to the digits that a picture of it can show. */
export function roundedValue(value, [low, high]) {
  const step = 10 ** Math.floor(Math.log10((high - low) / 200));
  const inside = Math.min(high, Math.max(low, value));
  return Number((Math.round(inside / step) * step).toPrecision(12));
}

/** The same with x_t replaced, or appended where t is the length. */
export function withValue(current, t, value) {
  if (t > current.values.length || t >= MAX_LENGTH) return current;
  const values = [...current.values];
  values[t] = value;
  return { ...current, values };
}

/** The same without x_t; switches after it move. */
export function without(current, t) {
  if (t < 0 || t >= current.values.length) return current;
  const values = current.values.filter((_, i) => i !== t);
  const moved = current.switches?.map((s) => (s > t ? s - 1 : s));
  const kept = moved?.filter((s, i) => s > 0 && s < values.length && s !== moved[i - 1]);
  return { ...current, values, switches: kept ?? null };
}

/** The first position where two sequences of one kind differ. */
export function firstDifference(one, other) {
  const shared = Math.min(one.length, other.length);
  let t = 0;
  while (t < shared && one[t] === other[t]) t++;
  return t;
}

/**
 * The sequence in a text, and a sentence about whatever was left out.
 *
 * A text with any number but 0 and 1 is a list of values. Otherwise its 0s and 1s are bits, if they
 * are at least half of it.
 * Returns { sequence, notice }, where `sequence` is null if there is nothing to use.
 */
export function parse(text) {
  const words = text.split(/[\s,;|]+/).filter(Boolean);
  const numbers = words.filter(isNumber);
  const isBits = !numbers.some((word) => !/^[01]+$/.test(word));
  const items = isBits ? [...words.join("")] : words;
  const good = isBits ? items.filter((item) => item === "0" || item === "1") : numbers;
  if (!good.length || (isBits && 2 * good.length < items.length)) {
    const what = words.length ? `“${shortened(words[0])}” is neither` : "the text is empty";
    return { sequence: null, notice: `There are no bits or numbers to use: ${what}.` };
  }
  const notices = [];
  if (items.length > good.length) {
    const bad = items.find((item) => !good.includes(item));
    const count = items.length - good.length;
    const noun = isBits ? "character" : "word";
    notices.push(`Left out ${count} ${noun}${count > 1 ? "s" : ""} such as “${shortened(bad)}”.`);
  }
  if (good.length > MAX_LENGTH) {
    notices.push(`Kept the first ${MAX_LENGTH} of ${good.length} observations.`);
  }
  const values = good.slice(0, MAX_LENGTH).map(Number);
  return { sequence: sequence(isBits ? "bits" : "values", values), notice: notices.join(" ") };
}

const shortened = (word) => (word.length > 12 ? `${word.slice(0, 11)}…` : word);

/** Undo and redo: the states before and after the present one. */
export class History {
  constructor(present) {
    this.past = [];
    this.present = present;
    this.future = [];
  }

  /** Enter a new state; one that continues the same gesture replaces the last. */
  push(state, continues = false) {
    if (!continues) this.past.push(this.present);
    this.past = this.past.slice(-500);
    this.present = state;
    this.future = [];
  }

  undo() {
    if (!this.past.length) return false;
    this.future.push(this.present);
    this.present = this.past.pop();
    return true;
  }

  redo() {
    if (!this.future.length) return false;
    this.past.push(this.present);
    this.present = this.future.pop();
    return true;
  }
}
