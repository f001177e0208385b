/** The table of predictors: a switch for each, what it expects, and the length of its code. */
import { PREDICTORS } from "./views.js";
import { shortNumber } from "./plot.js";

const SVG = "http://www.w3.org/2000/svg";

export class Legend {
  /** `onToggle(name, shown)` is called when the reader shows or hides a predictor. */
  constructor(table, onToggle) {
    this.table = table;
    this.rows = Object.fromEntries(
      Object.entries(PREDICTORS).map(([name, { label, about, dash }]) => {
        const row = table.tBodies[0].insertRow();
        const head = document.createElement("th");
        head.scope = "row";
        const box = document.createElement("input");
        box.type = "checkbox";
        box.addEventListener("change", () => onToggle(name, box.checked));
        const text = element("span", "name", label);
        const note = element("span", "note", about);
        const both = element("label", `predictor c-${name}`);
        const words = element("span", "words");
        words.append(text, note);
        both.append(box, sample(dash), words);
        head.append(both);
        row.append(head);
        return [name, { row, box, note, next: row.insertCell(), bits: row.insertCell() }];
      }),
    );
  }

  /** Show the numbers at slot t. */
  update({ model, settings }, t) {
    const { known } = model;
    const isLast = t === model.length;
    const end = Math.min(t + 1, model.length);
    const isBits = model.sequence.kind === "bits";
    const what = isBits ? "P(1)" : "mean";
    this.table.querySelector("#at").textContent = isLast ? `${what} next` : `${what} at ${t}`;
    this.table.querySelector("#to").textContent = isLast ? "bits" : `bits to ${t}`;
    const [winner] = end > 0 ? model.ranking(end) : [];
    for (const [name, { row, box, note, next, bits }] of Object.entries(this.rows)) {
      const isKnown = known.includes(name);
      const predictor = model.predictors[name];
      const complete = isKnown && model.isComplete(name);
      row.classList.toggle("unknown", !isKnown);
      box.disabled = !isKnown;
      box.checked = isKnown && !settings.hidden.includes(name);
      bits.classList.toggle("winner", name === winner);
      note.textContent = isKnown ? aboutPredictor(name, model) : whyUnknown(name);
      const prediction = predictor?.prediction[t];
      const shown = complete && !Number.isNaN(prediction);
      next.textContent = shown ? (isBits ? prediction.toFixed(3) : shortNumber(prediction)) : "–";
      const length = complete ? predictor.bits[end].toFixed(1) : "–";
      bits.replaceChildren(element("span", "", length));
      bits.title = name === winner ? "the shortest code, the oracle aside" : "";
    }
  }
}

function aboutPredictor(name, model) {
  if (name === "ptw") return `exact, a binary tree of depth ${model.depth}`;
  return PREDICTORS[name].about;
}

const whyUnknown = (name) =>
  name === "oracle" ? "needs a drawn sequence, whose switches are known" : "reads bits only";

/** A piece of the predictor's line; its color comes from the style. */
function sample(dash) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("class", "sample");
  picture.setAttribute("viewBox", "0 0 26 10");
  picture.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "line");
  const ends = { x1: 1, x2: 25, y1: 5, y2: 5, "stroke-dasharray": dash.join(" ") };
  for (const [key, value] of Object.entries(ends)) line.setAttribute(key, value);
  picture.append(line);
  return picture;
}

/** An HTML element with a class and a text. */
export function element(tag, className, text = "") {
  const created = document.createElement(tag);
  created.className = className;
  created.textContent = text;
  return created;
}
