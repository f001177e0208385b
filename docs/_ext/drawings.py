"""The drawings of the pages on concepts: SVG in the colours of the theme, with computed numbers.

A page writes a directive `{drawing}` with the name of a function of this file, and the caption.
"""

import functools

import jax.numpy as jnp
import numpy as np
from canvas import Canvas
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import switchpoint as sp

COLOURS = ("one", "two", "three")


def partition_tree():
    """A partition of eight observations as splits of a binary tree."""
    canvas = Canvas("A partition tree over eight observations", 720, 340)
    segments = [(0, 4), (4, 6), (6, 8)]
    prior = sp.PTW(3)
    law = [
        prior.log_pmf(s, e - s) if e < 8 else prior.log_survival(s, e - s - 1) for s, e in segments
    ]
    slot, left = 68, 150

    def place(height, index):
        size = 2**height
        return left + slot * size * (index + 0.5), 40 + 62 * (3 - height)

    for height in range(3, -1, -1):
        canvas.text(
            left - 24,
            45 + 62 * (3 - height),
            f"{2**height} observation{'s' * (height > 0)}",
            "quiet",
            "end",
        )
        for index in range(2 ** (3 - height)):
            first, last = index * 2**height, (index + 1) * 2**height
            x, y = place(height, index)
            segment = next(
                (i for i, (s, e) in enumerate(segments) if s <= first and last <= e), None
            )
            below = segment is not None and segments[segment] != (first, last)
            faint = {"opacity": 0.3} if below else {}
            if height:
                for child in (2 * index, 2 * index + 1):
                    within = {"opacity": 0.25} if segment is not None else {}
                    canvas.line(x, y, *place(height - 1, child), **within)
            if segment is None or below:
                canvas.add("circle", cx=x, cy=y, r=8, kind="box", **faint)
            else:
                canvas.add("circle", cx=x, cy=y, r=10, kind=COLOURS[segment])
            if segment is None:
                canvas.text(x + 16, y - 6, "splits", "quiet", "start")
    for i, (s, e) in enumerate(segments):
        x, width = left + slot * s, slot * (e - s)
        canvas.box(x + 4, 258, width - 8, 34, f"{COLOURS[i]} soft")
        probability = float(jnp.exp(law[i]))
        canvas.text(x + width / 2, 280, f"x{_below(s)} … x{_below(e - 1)}", "bold")
        more = "≥ " if e == 8 else ""
        canvas.text(
            x + width / 2, 312, f"P(L {more or '= '}{e - s} | {s}) = {probability:g}", "quiet"
        )
    total = float(jnp.exp(sum(law)))
    canvas.text(
        left + 4 * slot,
        334,
        f"P(this partition) = 1/{1 / total:g}: five decisions of probability ½",
    )
    return canvas.svg()


def _below(number):
    return "".join("₀₁₂₃₄₅₆₇₈₉"[int(digit)] for digit in str(number))


def alive_starts():
    """The starts that are possible at each time under PTW."""
    canvas, size, cell = Canvas("The starts that PTW allows at each time", 720, 360), 16, 19
    prior = sp.PTW(4)
    at = 11
    for t in range(size):
        for s in range(t + 1):
            alive = bool(prior.log_survival(s, t - s) > -jnp.inf)
            x, y = 150 + cell * t, 24 + cell * s
            kind = ("two" if t == at else "one soft") if alive else "line"
            canvas.box(x, y, cell - 3, cell - 3, kind, **({} if alive else {"opacity": 0.25}))
            if t == at and alive:
                canvas.text(
                    150 + cell * size + 14,
                    y + 13,
                    f"start {s}: x{_below(s)} … x{_below(at)}",
                    "",
                    "start",
                )
    canvas.text(150 + cell * size, 24 + cell * size + 14, "time t →", "quiet", "end")
    canvas.text(136, 40, "start s ↓", "quiet", "end")
    canvas.text(150 + cell * (at + 0.4), 24 + cell * size + 14, f"t = {at}")
    return canvas.svg()


def starts():
    """The lattice of the forward recursion, with the exact posterior as areas."""
    bits, hazard = [0, 0, 0, 0, 0, 1, 1, 0, 1, 1], 0.1
    bayes = sp.bayes_optimal(sp.Source(sp.Geometric(hazard), sp.Bernoulli()))
    run_length = np.asarray(bayes.posterior(jnp.array(bits)).run_length_pmf())
    canvas, step, left, top = Canvas("The lattice of starts", 720, 400), 46, 190, 70
    n = len(bits)

    def place(t, s):
        return left + step * t, top + 30 * s

    for t in range(n):
        x = left + step * t
        canvas.box(x - 13, 14, 26, 26)
        canvas.text(x, 32, str(bits[t]), "bold")
        for s in range(t + 1):
            x, y = place(t, s)
            if t + 1 < n:
                canvas.line(x, y, *place(t + 1, s), opacity=0.6)
    for s in range(4):
        (x1, y1), (x2, y2) = place(3, s), place(4, 4)
        canvas.arrow(x1 + 4, y1 + 4, x2 - 8, y2 - 8, "line two")
    for t in range(n):
        for s in range(t + 1):
            probability = run_length[t, t - s]
            x, y = place(t, s)
            canvas.add("circle", cx=x, cy=y, r=float(1.5 + 12 * np.sqrt(probability)), kind="one")
    for s in range(n):
        canvas.text(left - 30, top + 30 * s + 5, f"segment began at {s}", "quiet", "end")
    canvas.text(left - 30, 32, "observation", "quiet", "end")
    canvas.text(left + 10, top + 30 * 6 + 5, "every segment may end,", "quiet", "start")
    canvas.text(left + 10, top + 30 * 7 - 5, f"with probability {hazard};", "quiet", "start")
    canvas.text(left + 10, top + 30 * 8 - 15, "then one begins", "quiet", "start")
    return canvas.svg()


def merges():
    """Statistics of adjacent runs merge."""
    canvas, bits = Canvas("Counts of two runs add up", 720, 230), [0, 0, 1, 0, 1, 1, 0, 1]
    left, slot = 100, 66

    def counts(run):
        return f"({run.count(0)}, {run.count(1)})"

    for t, bit in enumerate(bits):
        x = left + slot * t
        canvas.box(x + 4, 10, slot - 8, 30)
        canvas.text(x + slot / 2, 30, str(bit), "bold")
        canvas.text(x + slot / 2, 68, counts([bit]), "quiet")
    for half in (0, 1):
        x = left + 4 * slot * half
        canvas.box(x + 4, 88, 4 * slot - 8, 36, f"{COLOURS[half]} soft")
        run = bits[4 * half : 4 * half + 4]
        canvas.text(x + 2 * slot, 111, counts(run), "bold")
        canvas.arrow(x + 2 * slot, 128, left + 4 * slot + (60 if half else -60), 166)
    canvas.box(left + 4, 170, 8 * slot - 8, 36, "three soft")
    mean = float(jnp.exp(sp.KT().log_probs(jnp.array([*bits, 1])))[-1, 1])
    ratio = f"({bits.count(1)} + ½) / ({len(bits)} + 1) = {mean:g}"
    text = f"{counts(bits)}: the next bit is 1 with probability {ratio}"
    canvas.text(left + 4 * slot, 193, text, "bold")
    canvas.text(left - 12, 111, "merge", "quiet", "end")
    canvas.text(left - 12, 68, "statistic", "quiet", "end")
    return canvas.svg()


def chunk():
    """The statistics that meet in a block of the forward recursion."""
    canvas, slot, left, rows = Canvas("What merges in a chunk", 720, 330), 46, 130, 5
    border = left + slot * rows
    canvas.text(left + slot * rows / 2, 20, "before the block", "quiet")
    canvas.text(border + slot * rows / 2, 20, "the block", "quiet")
    for t in range(2 * rows):
        canvas.box(left + slot * t + 4, 30, slot - 8, 22)
        canvas.text(left + slot * (t + 0.5), 46, f"x{_below(t)}")
    canvas.line(border, 26, border, 300, stroke_dasharray="4 4")
    for i in range(rows):
        y = 66 + 19 * i
        canvas.box(left + slot * i + 4, y, slot * (rows - i) - 8, 13, "one soft")
        canvas.box(border + 4, y, slot * (i + 1) - 8, 13, "two soft")
    canvas.text(left - 10, 106, "one per start", "quiet", "end")
    canvas.text(border + slot * rows + 10, 106, "one per time", "quiet", "start")
    for s in range(rows):
        for t in range(rows):
            x, y = border + slot * t + 6, 182 + 19 * s
            canvas.box(x, y, (slot - 12) / 2, 13, "one soft")
            canvas.box(x + (slot - 12) / 2, y, (slot - 12) / 2, 13, "two soft")
    canvas.text(border - 12, 222, "each start with each time:", "quiet", "end")
    canvas.text(border - 12, 240, "one merge, one density", "quiet", "end")
    for t in range(rows):
        canvas.box(border + slot * t + 6, 290, slot - 12, 13, "three")
    canvas.text(border - 12, 301, "starts inside the block: step by step", "quiet", "end")
    return canvas.svg()


def network():
    """A network sees the observations alone, and is compared with Bayes."""
    bits, switch = [0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 1, 1], 6
    symbols = jnp.array(bits)
    bayes = sp.bayes_optimal(sp.Source(sp.PTW(8), sp.Bernoulli()))
    rows = {
        "LSTM: P(next is 1)": (sp.load("lstm-ptw"), "one"),
        "optimum: P(next is 1)": (bayes, "two"),
    }
    canvas, slot, left = Canvas("What a network sees", 720, 370), 44, 180
    for first, last, bias in ((0, switch, "0.1"), (switch, len(bits), "0.8")):
        x, width = left + slot * first, slot * (last - first)
        canvas.box(x + 3, 10, width - 6, 32, "line", stroke_dasharray="5 4")
        canvas.text(x + width / 2, 31, f"bias {bias}", "quiet")
    canvas.text(left - 14, 31, "hidden", "quiet", "end")
    for t, bit in enumerate(bits):
        x = left + slot * (t + 0.5)
        canvas.box(x - 15, 58, 30, 28)
        canvas.text(x, 77, str(bit), "bold")
        canvas.arrow(x, 88, x, 112)
        canvas.box(x - 15, 114, 30, 28, "three soft")
        if t + 1 < len(bits):
            canvas.arrow(x + 16, 128, x + slot - 16, 128)
        canvas.arrow(x, 144, x, 166)
    canvas.text(left - 14, 77, "what it sees", "", "end")
    canvas.text(left - 14, 132, "its state", "quiet", "end")
    for row, (name, (predictor, kind)) in enumerate(rows.items()):
        base = 240 + 90 * row
        probs = np.exp(np.asarray(predictor.log_probs(jnp.append(symbols, 0))))[1:, 1]
        canvas.line(left, base, left + slot * len(bits), base)
        for t, p in enumerate(probs):
            canvas.box(
                left + slot * t + 8, base - 66 * float(p), slot - 16, 66 * float(p), f"{kind} soft"
            )
            canvas.text(left + slot * (t + 0.5), base + 16, f"{p:.2f}", "quiet")
        canvas.text(left - 14, base - 20, name, "", "end")
    return canvas.svg()


def filtered_and_smoothed():
    """Three probabilities that are easily confused, on the same thirty values."""
    values = np.array([0.0] * 15 + [3.2] * 15) + 0.9 * np.sin(7.3 * np.arange(30) ** 1.5)
    hazard = 1 / 30
    source = sp.Source(sp.Geometric(hazard), sp.Gaussian(mean_scale=2.0))
    posterior = sp.bayes_optimal(source).posterior(jnp.array(values))
    slot, left = 17, 190
    rows = {
        "P(switch at t | x up to t)": np.asarray(posterior.switch_filtered),
        "P(switch at t | all x)": np.asarray(posterior.switch_smoothed),
        "P(run length 0)": np.where(np.arange(30) > 0, hazard, 0),
    }
    canvas = Canvas("Filtered, smoothed, and the hazard", 720, 400)
    for t, value in enumerate(values):
        canvas.add(
            "circle", cx=left + slot * (t + 0.5), cy=float(66 - 12 * value), r=3.5, kind="one"
        )
    canvas.text(left - 14, 56, "values", "quiet", "end")
    canvas.line(left + 15 * slot, 8, left + 15 * slot, 380, stroke_dasharray="4 4")
    for row, (name, probability) in enumerate(rows.items()):
        base = 180 + 98 * row
        canvas.line(left, base, left + 30 * slot, base)
        canvas.text(left - 14, base - 24, name, "", "end")
        for t, p in enumerate(probability):
            canvas.box(
                left + slot * t + 2,
                base - 70 * float(p),
                slot - 4,
                70 * float(p),
                f"{COLOURS[row]}",
            )
        largest = int(np.argmax(probability))
        where = (
            f"largest: {probability[largest]:.2f} at {largest}"
            if row < 2
            else f"always the hazard, {hazard:.2f}"
        )
        canvas.text(left, base - 74, where, "quiet", "start")
    return canvas.svg()


DRAWINGS = {
    each.__name__: functools.cache(each)
    for each in (
        partition_tree,
        alive_starts,
        starts,
        merges,
        chunk,
        network,
        filtered_and_smoothed,
    )
}


class Drawing(SphinxDirective):
    """A drawing, with the content of the directive as its caption."""

    required_arguments = 1
    has_content = True

    def run(self):
        """Return a container with the drawing and its caption."""
        drawing = nodes.container(classes=["drawing"])
        drawing += nodes.raw("", DRAWINGS[self.arguments[0]](), format="html")
        self.state.nested_parse(self.content, self.content_offset, drawing)
        return [drawing]


def setup(app):
    """Register the directive."""
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True}
