/** The page: reads the reader's gestures, keeps the state, and draws what changed. */
import { MAX_LENGTH, geometric, lin, ptw } from "./priors.js";
import { parametersFor } from "./segments.js";
import { History, parse, roundedValue, sequence, withValue, without } from "./sequence.js";
import { draw } from "./sampling.js";
import { DEFAULTS, decode, encode } from "./link.js";
import { Model } from "./model.js";
import { Plot, shortNumber } from "./plot.js";
import { PREDICTORS, VIEWS } from "./views.js";
import { Legend, element } from "./legend.js";

/** The sequences that the page begins with: three segments each, drawn at random. */
const EXAMPLES = {
  bits: sequence(
    "bits",
    Array.from(
      "00010010000000000000000000000000100000001000" +
        "0111101111111111111111111111111111111001" +
        "00011010000000101000010101101001010111000001",
      Number,
    ),
    [44, 84],
  ),
  values: sequence(
    "values",
    [
      3.5, 2.8, 3.2, 1.9, 2.3, 3.4, 2.7, 3.3, 3.3, 3.7, 3.4, 3.5, 2.9, 2.7, 2.6, 2.8, 2.4, 2.7, 3,
      3.1, 2.8, 2, 3, 3.1, 3.5, 3.3, 2.7, 2.6, 4, 3.4, 3.9, 4.1, 2.6, 3.2, 3.2, 3.3, 3.3, 3.1, 3.1,
      2.2, 6.4, 6.1, 6.6, 6.3, 6.8, 6.9, 6.7, 6.7, 6.5, 6.3, 6.4, 6.3, 6.7, 6.5, 6.8, 5.8, 6.9, 6.1,
      6.1, 6.4, 6.2, 6.6, 6.2, 6, 6.1, 7.2, 6.5, 5.9, 6.5, 5.7, 7.4, 5.7, 6.7, 6.8, 5.8, 5.4, 6.2,
      5.6, 5.3, 6.1, 5.2, 5.4, 4.8, 5.8, 3.9, 6, 4.4, 3.7, 5.4, 7, 6.2, 4.4, 5.8, 4.5, 4.9, 5.1, 2.2,
      5.2, 3.8, 4.2, 3.2, 3.2, 3.9, 6, 7, 5, 6.3, 4.7, 2.7, 5.2, 5.5, 4.5, 5.4, 5.7, 4, 3.2, 4.7,
      4.7, 4.6, 6.2,
    ],
    [40, 75],
    [0, 10],
  ),
};
const FRAME = 9; // milliseconds of a frame that the networks may take
const COLORS = ["ink", "soft", "line", "cursor", "accent", "one", "zero", "hindsight"];

const find = (selector) => document.querySelector(selector);

class Page {
  constructor(networks) {
    this.model = new Model(networks);
    this.settings = { ...DEFAULTS };
    this.history = new History(EXAMPLES.bits);
    this.last = { ...EXAMPLES }; // the sequence of each kind that was shown last
    this.cursor = null; // the slot that the reader looks at
    this.hovering = false; // whether the pointer chose it, not a key
    this.caret = EXAMPLES.bits.values.length; // the slot that typing changes
    this.stale = true; // whether the model has to be updated
    this.frame = null;
    this.plots = Object.fromEntries(
      Object.keys(VIEWS).map((name) => [name, new Plot(find(`#${name} .plot`))]),
    );
    this.legend = new Legend(find("#legend"), (name, shown) => this.toggle(name, shown));
    this.readColors();
  }

  get sequence() {
    return this.history.present;
  }

  /** The slots of all views: the observations, and one for the next. */
  get slots() {
    return this.sequence.values.length + 1;
  }

  // What changes the state.

  /** Show another sequence; an edit that `continues` a gesture is undone together with it. */
  edit(changed, continues = false) {
    if (changed === this.sequence) return;
    this.history.push(changed, continues);
    this.changed();
  }

  changed() {
    this.last[this.sequence.kind] = this.sequence;
    this.caret = Math.min(this.caret, this.sequence.values.length, MAX_LENGTH - 1);
    this.stale = true;
    this.requestDraw();
    this.afterAWhile();
  }

  change(settings) {
    this.settings = { ...this.settings, ...settings };
    this.changed();
  }

  toggle(name, shown) {
    const hidden = this.settings.hidden.filter((each) => each !== name);
    this.change({ hidden: shown ? hidden : [...hidden, name] });
  }

  /** A whole sequence in place of this one. */
  replace(changed, notice = "") {
    this.settings = { ...this.settings, revealed: false };
    this.edit(changed);
    this.caret = Math.min(changed.values.length, MAX_LENGTH - 1);
    this.say(notice);
  }

  paste(text) {
    const { sequence: pasted, notice } = parse(text);
    if (pasted) this.replace(pasted, notice || `Pasted ${pasted.values.length} observations.`);
    else this.say(notice);
  }

  step(which) {
    const moved = which === "undo" ? this.history.undo() : this.history.redo();
    if (moved) this.changed();
    else this.say(`There is nothing to ${which}.`);
  }

  drawFrom(source, length) {
    const priors = { ptw: ptw(length > 256 ? 9 : 8), lin: lin(), geometric: geometric(this.settings.hazard) };
    const isBits = this.sequence.kind === "bits";
    const parameters = isBits ? null : parametersFor([0, 10]);
    const { values, switches } = draw(priors[source], length, Math.random, parameters);
    const shown = isBits ? values : values.map((value) => Number(value.toFixed(2)));
    this.replace(sequence(this.sequence.kind, shown, switches));
  }

  /** Open the state of a link, or the example. */
  open(hash) {
    if (!hash) return;
    const { sequence: linked, settings, notice } = decode(hash);
    this.settings = settings;
    if (linked) this.history.push(linked);
    this.changed();
    this.caret = Math.min(this.sequence.values.length, MAX_LENGTH - 1);
    this.say(notice);
  }

  /** Type at the caret. */
  type(value) {
    if (this.caret >= MAX_LENGTH) return;
    const t = this.caret;
    this.edit(withValue(this.sequence, t, value));
    this.caret = Math.min(t + 1, this.sequence.values.length, MAX_LENGTH - 1);
    this.announce(t);
  }

  // What shows it.

  say(text) {
    find("#message").textContent = text;
  }

  announce(t) {
    find("#live").textContent = this.spoken("strip", t);
  }

  readColors() {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colors = Object.fromEntries(
      [...COLORS, ...Object.keys(PREDICTORS)].map((name) => [name, color(name)]),
    );
    this.colors.heat = colorScale(["heat-0", "heat-1", "heat-2", "heat-3"].map(color));
  }

  requestDraw() {
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      if (!this.render(FRAME)) this.requestDraw();
    });
  }

  /** Bring all numbers and views up to date, the networks as far as `patience` milliseconds allow. */
  render(patience = Infinity) {
    if (this.stale) this.model.update(this.sequence, this.settings);
    this.stale = false;
    const done = this.model.advanceNetworks(performance.now() + patience);
    const { model, settings, cursor, caret, colors } = this;
    const scene = { model, settings, cursor, caret, colors };
    for (const [name, view] of Object.entries(VIEWS)) {
      this.plots[name].begin(this.slots, view.height(scene), colors);
      view.draw(this.plots[name], scene);
      const [found, what] = view.about(scene);
      const about = find(`#${name} .about`);
      const parts = [element("strong", "", found), ` ${what}`];
      if (about.textContent !== `${found} ${what}`) about.replaceChildren(...parts);
      this.describeSlider(name, cursor ?? (name === "strip" ? caret : model.length));
    }
    this.legend.update(scene, Math.min(cursor ?? model.length, model.length));
    this.showControls();
    return done;
  }

  describeSlider(name, t) {
    const { element: slider } = this.plots[name];
    slider.ariaValueMin = "0";
    slider.ariaValueMax = String(this.slots - 1);
    slider.ariaValueNow = String(t);
    slider.ariaValueText = this.spoken(name, t);
  }

  /** What a view shows at slot t, in words. */
  spoken(name, t) {
    const rows = VIEWS[name].rows(this, t).map(([label, text]) => `${label} ${text}`);
    return `observation ${t} of ${this.sequence.values.length}: ${rows.join(", ")}`;
  }

  showControls() {
    const { kind, switches } = this.sequence;
    const { posterior, revealed, hazard } = this.settings;
    const press = (button, pressed) => (button.ariaPressed = String(pressed));
    document.querySelectorAll("[data-kind]").forEach((b) => press(b, b.dataset.kind === kind));
    document
      .querySelectorAll("[data-posterior]")
      .forEach((b) => press(b, b.dataset.posterior === posterior));
    press(find("#reveal"), revealed && switches !== null);
    find("#reveal").disabled = switches === null;
    find("#undo").disabled = !this.history.past.length;
    find("#redo").disabled = !this.history.future.length;
    find("#hazard").value = Math.log10(hazard);
    find("#hazard-value").textContent = `${shortNumber(hazard)}, a switch every ${Math.round(1 / hazard)}`;
  }

  /** The address and the spoken summary, once the reader pauses. */
  afterAWhile() {
    clearTimeout(this.pause);
    this.pause = setTimeout(() => {
      try {
        history.replaceState(null, "", `#${encode(this.sequence, this.settings)}`);
      } catch {
        // Where the page is embedded without an address of its own, links are not kept.
      }
      find("#live").textContent = VIEWS.code.about(this)[0];
    }, 400);
  }

  /** Move the cursor, with a tip near the slot in the view `name`, at the pointer's height if given. */
  lookAt(t, name = null, y = null) {
    this.cursor = t;
    this.hovering = y !== null;
    this.requestDraw();
    const tip = find("#tip");
    const rows = t === null ? [] : VIEWS[name].rows(this, t);
    tip.hidden = t === null || rows.length === 0;
    if (tip.hidden) return;
    tip.replaceChildren(
      element("b", "", t < this.sequence.values.length ? `observation ${t}` : "next observation"),
      ...rows.flatMap(([label, text, color]) => [
        element("span", color ? `key c-${color}` : "key plain", label),
        element("span", "number", text),
      ]),
    );
    const plot = this.plots[name];
    const box = plot.element.getBoundingClientRect();
    const x = box.left + plot.x(t) + plot.slot + 10;
    const width = tip.offsetWidth;
    const left = x + width > window.innerWidth - 8 ? x - plot.slot - 20 - width : x;
    const top = Math.min(y ?? box.top + 16, window.innerHeight - tip.offsetHeight - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  }
}

/** A scale of 256 colors through these hexadecimal ones, as the words of an `ImageData`. */
function colorScale(stops) {
  const channels = stops.map((stop) => [1, 3, 5].map((i) => parseInt(stop.slice(i, i + 2), 16)));
  return Uint32Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (stops.length - 1);
    const k = Math.min(stops.length - 2, Math.floor(place));
    const mix = channels[k].map((from, c) => from + (place - k) * (channels[k + 1][c] - from));
    const [r, g, b] = mix.map(Math.round);
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  });
}

/** Clicks, drags and keys on the strip. */
function listenToStrip(page) {
  const { element: strip } = page.plots.strip;
  let painting = null; // the bit that a drag paints; "value" for values
  const paint = (event, continues) => {
    const { t, value } = page.plots.strip.at(event.clientX, event.clientY);
    if (t >= MAX_LENGTH) return;
    const { values, range } = page.sequence;
    if (!continues) painting = range ? "value" : t < values.length ? 1 - values[t] : 1;
    const painted = range ? roundedValue(value, range) : painting;
    if (values[t] !== painted) page.edit(withValue(page.sequence, t, painted), continues);
    page.caret = Math.min(t + (t === values.length ? 1 : 0), MAX_LENGTH - 1);
  };
  strip.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    strip.setPointerCapture?.(event.pointerId);
    paint(event, false);
  });
  strip.addEventListener("pointermove", (event) => {
    if (painting !== null) paint(event, true);
  });
  const end = () => (painting = null);
  strip.addEventListener("pointerup", end);
  strip.addEventListener("pointercancel", end);
  strip.addEventListener("keydown", (event) => onStripKey(page, event));
}

function onStripKey(page, event) {
  const { values, range } = page.sequence;
  const t = page.caret;
  const jump = range ? (range[1] - range[0]) / 40 : 0;
  const shift = { ArrowUp: jump, ArrowDown: -jump }[event.key];
  if (event.key === " " || event.key === "Enter") {
    if (!range && t < MAX_LENGTH) page.edit(withValue(page.sequence, t, t < values.length ? 1 - values[t] : 1));
  } else if (event.key === "Backspace") {
    page.edit(without(page.sequence, t - 1));
    page.caret = Math.max(0, t - 1);
  } else if (event.key === "Delete") {
    page.edit(without(page.sequence, t));
  } else if (shift) {
    const from = values[t] ?? values[t - 1] ?? (range[0] + range[1]) / 2;
    page.edit(withValue(page.sequence, t, roundedValue(from + shift, range)));
  } else return;
  event.preventDefault();
  page.announce(page.caret);
  page.requestDraw();
}

/** Looking at slots with the pointer and with the arrow keys, in every view. */
function listenToView(page, name) {
  const plot = page.plots[name];
  const follow = (event) =>
    page.lookAt(plot.at(event.clientX, event.clientY).t, name, event.clientY + 14);
  plot.element.addEventListener("pointermove", follow);
  plot.element.addEventListener("pointerdown", follow);
  plot.element.addEventListener("pointerleave", (event) => {
    // A finger leaves to show the numbers.
    if (page.hovering && event.pointerType !== "touch") page.lookAt(null);
  });
  plot.element.addEventListener("blur", () => page.lookAt(null));
  plot.element.addEventListener("keydown", (event) => {
    const last = page.slots - 1;
    const now = name === "strip" ? page.caret : (page.cursor ?? last);
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: 16, PageDown: -16, Home: -now, End: last };
    if (event.key === "Escape") page.lookAt(null);
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const t = Math.min(last, Math.max(0, now + moves[event.key]));
    if (name === "strip") page.caret = Math.min(t, MAX_LENGTH - 1);
    page.lookAt(t, name);
  });
}

function listenToControls(page) {
  const click = (selector, action) => find(selector).addEventListener("click", action);
  document.querySelectorAll("[data-kind]").forEach((button) =>
    button.addEventListener("click", () => page.replace(page.last[button.dataset.kind])),
  );
  document.querySelectorAll("[data-posterior]").forEach((button) =>
    button.addEventListener("click", () => page.change({ posterior: button.dataset.posterior })),
  );
  find("#draw").addEventListener("submit", (event) => {
    event.preventDefault();
    page.drawFrom(find("#source").value, Number(find("#length").value));
  });
  find("#hazard").addEventListener("input", (event) =>
    page.change({ hazard: Number((10 ** Number(event.target.value)).toPrecision(2)) }),
  );
  click("#reveal", () => page.change({ revealed: !page.settings.revealed }));
  click("#undo", () => page.step("undo"));
  click("#redo", () => page.step("redo"));
  click("#clear", () => page.replace(sequence(page.sequence.kind, [], null, page.sequence.range)));
  click("#text", () => find("#dialog").showModal());
  find("#dialog").addEventListener("close", () => {
    if (find("#dialog").returnValue === "use") page.paste(find("#words").value);
  });
  click("#copy", async () => {
    const address = `${location.href.split("#")[0]}#${encode(page.sequence, page.settings)}`;
    try {
      await navigator.clipboard.writeText(address);
      page.say("The link is copied: it carries the sequence and the settings.");
    } catch {
      page.say("The browser does not let this page copy: copy the address of the page instead.");
    }
  });
}

function listenToWindow(page) {
  const isField = (target) => target.matches?.("input, select, textarea");
  window.addEventListener("keydown", (event) => {
    if (isField(event.target) || find("#dialog").open) return;
    const key = event.key.toLowerCase();
    if (event.ctrlKey || event.metaKey) {
      if (key === "z" || key === "y") {
        event.preventDefault();
        page.step(key === "y" || event.shiftKey ? "redo" : "undo");
      }
    } else if (!event.altKey && page.sequence.kind === "bits" && (key === "0" || key === "1")) {
      page.type(Number(key));
    }
  });
  window.addEventListener("paste", (event) => {
    if (isField(event.target)) return;
    event.preventDefault();
    page.paste(event.clipboardData.getData("text"));
  });
  window.addEventListener("hashchange", () => page.open(location.hash.slice(1)));
  window.addEventListener("resize", () => page.requestDraw());
  const leaveTip = () => {
    if (page.hovering) page.lookAt(null);
    find("#tip").hidden = true; // a key may have scrolled the window, and its cursor stays
  };
  window.addEventListener("scroll", leaveTip, { passive: true });
}

/** The theme of the system, until the reader chooses another. */
function listenToTheme(page) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const show = () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
    find("#theme").ariaPressed = String(isDark);
    page.readColors();
    page.requestDraw();
  };
  dark.addEventListener("change", show);
  find("#theme").addEventListener("click", () => {
    root.dataset.theme = find("#theme").ariaPressed === "true" ? "light" : "dark";
    show();
  });
  show();
}

const page = new Page(JSON.parse(find("#networks").textContent));
listenToStrip(page);
Object.keys(VIEWS).forEach((name) => listenToView(page, name));
listenToControls(page);
listenToWindow(page);
listenToTheme(page);
page.open(location.hash.slice(1));
page.requestDraw();
globalThis.playground = page;
