/**
 * The address of a state: sequence and settings as text after the #, in plain words, such as
 * #bits=0011&switches=2&hazard=0.02&posterior=geometric&hidden=rnn&end=4. The number of
 * observations comes last: a link without it was cut.
 */
import { MAX_LENGTH } from "./priors.js";
import { isNumber, sequence } from "./sequence.js";

export const DEFAULTS = {
  hazard: 0.02,
  posterior: "geometric",
  hidden: ["lin", "oracle", "rnn"],
  revealed: false,
};
const LAWS = ["ptw", "lin", "geometric"];
const NAMES = [...LAWS, "kt", "oracle", "rnn", "lstm"];

/** The text of a state { sequence, settings }. */
export function encode({ kind, values, switches, range }, settings) {
  const parts = [`${kind}=${values.join(kind === "bits" ? "" : ",")}`];
  if (range) parts.push(`range=${range.join(",")}`);
  if (switches) parts.push(`switches=${switches.join(",")}`);
  parts.push(`hazard=${settings.hazard}`, `posterior=${settings.posterior}`);
  parts.push(`hidden=${settings.hidden.join(",")}`);
  if (settings.revealed) parts.push("revealed=1");
  parts.push(`end=${values.length}`);
  return parts.join("&");
}

/**
 * The state in a text, without the #: { sequence, settings, notice }. Whatever cannot be read has
 * its default, and `notice` says so; `sequence` is null where there is none.
 */
export function decode(text) {
  const fields = new Map(text.split("&").map((part) => part.split("=", 2)));
  const problems = [];
  const settings = { ...DEFAULTS };
  const list = (name) => (fields.get(name) ?? "").split(",").filter(Boolean);

  const kind = fields.has("values") ? "values" : "bits";
  const words = kind === "bits" ? [...(fields.get("bits") ?? "")] : list("values");
  const valid = (word) => (kind === "bits" ? word === "0" || word === "1" : isNumber(word));
  const values = words.filter(valid).slice(0, MAX_LENGTH).map(Number);
  if (values.length < words.length) problems.push("some observations could not be read");

  const sides = list("range").filter(isNumber).map(Number);
  const range = sides.length === 2 && sides[0] < sides[1] ? sides : null;
  let switches = null;
  if (fields.has("switches")) {
    switches = list("switches").map(Number);
    const ordered = switches.every(
      (s, i) => Number.isInteger(s) && s > (switches[i - 1] ?? 0) && s < values.length,
    );
    if (!ordered) {
      problems.push("its switches could not be read");
      switches = null;
    }
  }
  if (fields.has("hazard")) {
    const hazard = Number(fields.get("hazard"));
    if (hazard >= 0.001 && hazard <= 0.5) settings.hazard = hazard;
    else problems.push("its hazard could not be read");
  }
  if (LAWS.includes(fields.get("posterior"))) settings.posterior = fields.get("posterior");
  if (fields.has("hidden")) settings.hidden = list("hidden").filter((n) => NAMES.includes(n));
  settings.revealed = fields.get("revealed") === "1";
  if (fields.get("end") !== String(words.length)) problems.push("its end is missing");

  const present = fields.has("bits") || fields.has("values");
  const shown = `showing the ${values.length} observations that could be read`;
  return {
    sequence: present ? sequence(kind, values, switches, range) : null,
    settings,
    notice: problems.length
      ? `This link is damaged (${problems.join(", ")}): ${present ? shown : "showing an example"}.`
      : "",
  };
}
