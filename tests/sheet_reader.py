"""A worksheet as a student has it: its text and tables, and what follows from the printed numbers alone.

Knows nothing of the code that writes sheets. `Reader` takes any of their HTML apart, `Sheet` computes the answers.
"""

import math
import re
from decimal import ROUND_HALF_UP, Decimal
from html.parser import HTMLParser

from regard.explain.trace import Trace


class Reader(HTMLParser):
    """Which tags and attributes a document has, its text, and its tables as rows of cells."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.tables: list[list[list[str]]] = []
        self.in_cell = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.in_cell = False
            self.text += " "

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.in_cell:
            self.tables[-1][-1][-1] += data


def figure(text: str) -> Decimal:
    return Decimal(text.replace("−", "-"))


def to(x: Decimal, places: str) -> Decimal:
    """As a pupil rounds."""
    return x.quantize(Decimal(places), ROUND_HALF_UP) + 0


class Sheet:
    """A sheet on which everything is asked for, computed by hand: `answers`, in the order of the fields."""

    def __init__(self, html: str) -> None:
        read = Reader(html)
        self.text = read.text
        scores, weights, mixture = read.tables[:3]
        self.rows = [re.fullmatch(r"(.*) (\d+)", row[0], re.S) for row in scores[1:]]
        self.positions = [int(row[2]) for row in self.rows if row]
        self.tokens = [row[1] for row in self.rows if row]
        self.channels = [int(title[1:]) for title in mixture[0][2:]]
        q = [figure(x) for x in re.findall(r"q\d+ = (−?[\d.]+\d)", self.text)]
        divisor = re.search(r"√\d+ ≈ ([\d.]+\d)", self.text)
        assert divisor
        by = figure(divisor[1])
        dots, found = [], []
        for row in scores[1:]:
            *k, rest = map(figure, row[1 : len(q) + 2])
            dots.append(to(sum((a * b for a, b in zip(q, k, strict=True)), rest), "0.01"))
        self.dots, self.scores = dots, [to(dot / by, "0.01") for dot in dots]
        self.shift = re.fullmatch(r"es(?: ([−+]) (\d+))?", weights[0][3])
        assert self.shift
        shift = int(f"{self.shift[1]}{self.shift[2]}".replace("−", "-")) if self.shift[1] else 0
        for row, score in zip(weights[1:], self.scores, strict=False):
            power = Decimal(math.exp(score + shift)) if row[2] == "yes" else Decimal(0)
            found.append(to(power, "0.001"))
        self.powers = found
        others = [figure(row[3]) for row in weights if row[0].startswith("the other")]
        self.total = sum(self.powers + others, Decimal(0))
        self.weights = [to(power / self.total, "0.001") for power in self.powers]
        rests = next(row for row in mixture if row[0] == "+ the rest")
        self.z = []
        for c in range(2, len(mixture[0])):
            mixed = [w * figure(row[c]) for w, row in zip(self.weights, mixture[1:], strict=False)]
            self.z.append(to(sum(mixed, figure(rests[c])), "0.01"))

    @property
    def answers(self) -> list[Decimal]:
        pairs = [*zip(self.dots, self.scores, strict=True), *zip(self.powers, self.weights, strict=True)]
        return [x for pair in pairs for x in pair] + [self.total, *self.z]

    def off_from(self, trace: Trace) -> float:
        """How far its answers are from the run's own numbers, in units of what rounding allows: at most 1."""
        place = re.search(r"(encoder|decoder) block (\d+), ([\w -]+), head (\d+)\. The query is token (\d+)", self.text)
        assert place
        site = f"{place[1]}.{place[2]}.{'cross' if place[3].startswith('cross') else 'attention'}"
        head, i = int(place[4]), int(place[5])
        off = []
        for r, j in enumerate(self.positions):
            off.append(abs(float(self.dots[r]) - trace[f"{site}.dots"][head, i, j]) / 0.0101)
            off.append(abs(float(self.scores[r]) - trace[f"{site}.scores"][head, i, j]) / 0.02)
            off.append(abs(float(self.weights[r]) - trace[f"{site}.weights"][head, i, j]) / 0.02)
        off += [
            abs(float(z) - trace[f"{site}.Z"][head, i, c]) / 0.0101 for z, c in zip(self.z, self.channels, strict=True)
        ]
        return float(max(off))
