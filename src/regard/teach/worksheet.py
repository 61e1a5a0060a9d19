"""An exercise from a real run: one row of one head's attention, small enough to be computed by hand.

In: a trace, a seed and what is to be found out. Out: an `Exercise`. A few keys and features are printed, rounded; what the
others add up to is given, so that the hand-made result is the model's own. Every answer follows from the printed numbers
alone, rounded as a person would, and what the run itself had is kept beside it.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal

import numpy as np

from regard.errors import TaskError
from regard.explain.caption import scaling
from regard.explain.logits import largest
from regard.explain.trace import Array, Trace
from regard.model.graph import Site

LEVELS = ("scores", "weights", "z", "all")
STAGES = {"dot": "scores", "score": "scores", "power": "weights", "weight": "weights", "total": "weights", "z": "z"}
MOST = 500  # sheets in one document
LONGEST = 300  # tokens: beyond that a sheet's text leaves no room for its tables
KEYS, FEATURES, CHANNELS = 4, 3, 2  # at most so many are printed
DRAWS = 20  # rows of attention looked at for one that is not all on one key
TWO, THREE = Decimal("0.01"), Decimal("0.001")

Blank = tuple[str, int]  # what is left open: a column ("score") and a row


@dataclass(frozen=True)
class Key:
    """A key that the query looks at: its printed numbers, the answers, and what the run had."""

    token: str
    position: int
    seen: bool  # False: the mask hides it
    k: tuple[Decimal, ...]
    rest: Decimal  # what the other features add to q·k, and what rounding took from these
    v: tuple[Decimal, ...]
    dot: Decimal
    score: Decimal
    power: Decimal  # e^(score - shift)
    weight: Decimal
    run: dict[str, float]  # dot, score, weight as the model had them


@dataclass(frozen=True)
class Exercise:
    seed: str
    level: str
    site: Site
    head: int
    query: str
    position: int
    query_tokens: tuple[str, ...]  # what the query is taken from
    tokens: tuple[str, ...]  # what the keys are taken from
    features: tuple[int, ...]
    d_k: int
    q: tuple[Decimal, ...]
    divisor: Decimal  # √d_k, rounded; or what else this model divides by
    scaled: str  # the same in words
    shift: int  # taken from every score before e^, so that the powers stay small
    keys: tuple[Key, ...]
    others: int  # keys that are not printed
    other_powers: Decimal
    total: Decimal
    channels: tuple[int, ...]
    z_rest: tuple[Decimal, ...]
    z: tuple[Decimal, ...]
    run_z: tuple[float, ...]
    blanks: frozenset[Blank]

    def asked(self) -> list[Blank]:
        """What is left open, in the order of the sheet."""
        columns, stages = list(STAGES), list(dict.fromkeys(STAGES.values()))

        def order(blank: Blank) -> tuple[int, bool, int, int]:
            column, at = blank
            return stages.index(STAGES[column]), column == "total", at, columns.index(column)

        return sorted(self.blanks, key=order)

    def answer(self, blank: Blank) -> Decimal:
        """The number, with as many decimals as are asked for."""
        column, at = blank
        if column == "total":
            return self.total
        if column == "z":
            return self.z[at]
        return Decimal(getattr(self.keys[at], column))

    def looked_at_most(self) -> list[Key]:
        """The key with the largest share by the printed numbers; several if their scores are equal."""
        seen = [key for key in self.keys if key.seen]
        return [key for key in seen if key.score == max(key.score for key in seen)]


def decimals(answer: Decimal) -> int:
    """How many digits after the point are asked for."""
    return -int(answer.as_tuple().exponent)


def tolerance(answer: Decimal) -> Decimal:
    """How far from the answer still counts as right: one unit of the last digit asked for."""
    return Decimal(1).scaleb(-decimals(answer))


def exercises(trace: Trace, seed: str | int = 0, level: str = "all", students: int = 1) -> list[Exercise]:
    """One exercise per student, each with another head, row and slice; the same seed gives the same ones."""
    if not 1 <= students <= MOST:
        raise TaskError(f"students is {students}; there can be from 1 to {MOST} sheets in a document.")
    return [exercise(trace, f"{seed}.{n}" if students > 1 else seed, level) for n in range(1, students + 1)]


def exercise(trace: Trace, seed: str | int = 0, level: str = "all") -> Exercise:
    if level not in LEVELS:
        raise TaskError(f"level is {level!r}; it can be {', '.join(LEVELS)}.")
    if trace.edits:
        raise TaskError("A worksheet is made of a run as it was, and this one is edited.")
    chance = random.Random(f"{seed}")
    sites = [site for site in trace.graph.sites if by_hand(trace, site)]
    if not sites:
        raise TaskError("This run has no plain scaled dot-product attention to make a worksheet of.")
    tokens = max(len(trace.tokens_of(side)) for site in sites for side in (site.queries, site.keys))
    if tokens > LONGEST:
        raise TaskError(f"The text has {tokens} tokens, and a worksheet has room for {LONGEST}; give a shorter one.")
    site, head, i = interesting_row(trace, sites, chance)
    return Maker(trace, site, head, i, chance).make(str(seed), level)


def by_hand(trace: Trace, site: Site) -> bool:
    """Whether its weights are softmax(Q Kᵀ / √d_k), masked or not: what a sheet has blanks for."""
    ops = [trace.graph[name].op for name in site.steps if trace.graph[name].single]
    return ops in (["dot", "scale", "softmax"], ["dot", "scale", "mask", "softmax"]) and None not in (site.Q, site.V)


def interesting_row(trace: Trace, sites: Sequence[Site], chance: random.Random) -> tuple[Site, int, int]:
    """A site, head and query by lot; one whose weight lies all on one key is passed over while there are others."""
    for _ in range(DRAWS):
        site = chance.choice(sites)
        head = chance.randrange(site.heads)
        A = trace[site.weights][head]  # (N, T)
        i = chance.randrange(len(A))
        if A[i].max() < 0.9:
            break
    return site, head, i


class Maker:
    """One row of attention, taken apart."""

    def __init__(self, trace: Trace, site: Site, head: int, i: int, chance: random.Random) -> None:
        self.trace, self.site, self.head, self.i, self.chance = trace, site, head, i, chance
        self.Q, self.K, self.V = (trace[str(x)].astype(np.float64) for x in (site.Q, site.K, site.V))  # (h, N, d_k), …
        self.shared = site.heads // len(self.K)  # query heads per key/value head
        rows = [trace[name][head, i].astype(np.float64) for name in site.steps]
        self.dots, self.scores, self.weights = rows[0], rows[1], rows[-1]
        self.visible = np.isfinite(rows[-2])  # masked, where there is a mask
        self.scale = float(trace.graph[site.steps[1]].facts["by"])

    def make(self, seed: str, level: str) -> Exercise:
        group = self.head // self.shared
        d_k, d_v = self.Q.shape[-1], self.V.shape[-1]
        telling = largest(np.abs(self.Q[self.head, self.i]), 3 * FEATURES)[1].tolist()
        features = tuple(sorted(self.chance.sample(telling, min(FEATURES, d_k))))
        channels = tuple(sorted(self.chance.sample(range(d_v), min(CHANNELS, d_v))))
        chosen = self.choose_keys()
        q = rounded(self.Q[self.head, self.i, list(features)])
        K, V = (X[group][chosen] for X in (self.K, self.V))
        k_rows, v_rows = same_places(K[:, list(features)]), same_places(V[:, list(channels)])
        shift, divisor = self.shift(), half_up(1 / self.scale, TWO)
        keys = [self.key(j, q, k, v, divisor, shift) for j, k, v in zip(chosen, k_rows, v_rows, strict=True)]
        others = [j for j in range(len(self.dots)) if j not in chosen and self.visible[j]]
        other_powers = half_up(sum(math.exp(float(self.scores[j]) - shift) for j in others), THREE)
        total = sum((key.power for key in keys), other_powers)
        keys = [with_weight(key, total) for key in keys]
        run_z = tuple(self.trace[self.site.Z][self.head, self.i, list(channels)].tolist())
        sums = [sum((key.weight * key.v[c] for key in keys), Decimal(0)) for c in range(len(channels))]
        z_rest = tuple(half_up(z - float(s), TWO) for z, s in zip(run_z, sums, strict=True))
        asks, tokens = self.trace.tokens_of(self.site.queries), self.trace.tokens_of(self.site.keys)
        return Exercise(
            seed,
            level,
            self.site,
            self.head,
            asks[self.i],
            self.i,
            tuple(asks),
            tuple(tokens),
            features,
            d_k,
            q,
            divisor,
            scaling(self.trace.graph, self.site, self.site.steps[1]),
            shift,
            tuple(keys),
            len(others),
            other_powers,
            total,
            channels,
            z_rest,
            tuple(half_up(s + rest, TWO) for s, rest in zip(sums, z_rest, strict=True)),
            run_z,
            self.blanks(level, keys, len(channels)),
        )

    def choose_keys(self) -> list[int]:
        """The key with most weight, others by lot, and one that the mask hides if it hides any."""
        seen = np.flatnonzero(self.visible).tolist()
        hidden = [j for j in range(len(self.visible)) if not self.visible[j]]
        best = int(self.weights.argmax())
        room = KEYS - (1 if hidden else 0)
        rest = [j for j in seen if j != best]
        chosen = [best, *self.chance.sample(rest, min(room - 1, len(rest)))]
        return sorted(chosen + ([self.chance.choice(hidden)] if hidden else []))

    def shift(self) -> int:
        """0 while the powers of e stay handy, else about the largest score of the row."""
        most = float(self.scores[self.visible].max())
        return 0 if -1 <= most <= 4 else round(most)

    def key(
        self,
        j: int,
        q: tuple[Decimal, ...],
        k: tuple[Decimal, ...],
        v: tuple[Decimal, ...],
        divisor: Decimal,
        shift: int,
    ) -> Key:
        products = sum((a * b for a, b in zip(q, k, strict=True)), Decimal(0))
        rest = half_up(float(self.dots[j]) - float(products), TWO)
        dot = half_up(products + rest, TWO)
        score = half_up(dot / divisor, TWO)
        seen = bool(self.visible[j])
        power = half_up((score - shift).exp(), THREE) if seen else Decimal("0.000")
        run = {"dot": float(self.dots[j]), "score": float(self.scores[j]), "weight": float(self.weights[j])}
        token = self.trace.tokens_of(self.site.keys)[j]
        return Key(token, j, seen, k, rest, v, dot, score, power, Decimal(0), run)

    def blanks(self, level: str, keys: Sequence[Key], channels: int) -> frozenset[Blank]:
        """What is left open. At a single level one row stays filled in, as an example."""
        rows = range(len(keys))
        seen = [r for r in rows if keys[r].seen]
        shown = self.chance.choice(seen) if level in ("scores", "weights") and len(seen) > 2 else None
        open_rows = [r for r in rows if r != shown]
        cells: dict[str, list[Blank]] = {
            "scores": [(column, r) for r in open_rows for column in ("dot", "score")],
            "weights": [(column, r) for r in open_rows for column in ("power", "weight")] + [("total", 0)],
            "z": [("z", c) for c in range(channels)],
        }
        stages = list(cells) if level == "all" else [level]
        return frozenset(cell for stage in stages for cell in cells[stage])


def with_weight(key: Key, total: Decimal) -> Key:
    return Key(**{**vars(key), "weight": half_up(key.power / total, THREE)})


# ── rounding as a person does ───────────────────────────────────────────────────────────────────────────────────────


def half_up(x: float | Decimal, to: Decimal) -> Decimal:
    """5 goes up, away from zero; there is no -0."""
    value = Decimal(repr(x)) if isinstance(x, float | int) else x
    return value.quantize(to, ROUND_HALF_UP) + 0


def rounded(X: Array) -> tuple[Decimal, ...]:
    """One decimal if the largest is 0.5 or more, else two, else three."""
    (row,) = same_places(X[None])
    return row


def same_places(X: Array) -> list[tuple[Decimal, ...]]:
    """A matrix, all of its numbers with equally many decimals."""
    most = float(np.abs(X).max())
    decimals = 1 if most == 0 else min(3, 1 + max(0, -math.floor(math.log10(2 * most))))
    return [tuple(half_up(x, Decimal(1).scaleb(-decimals)) for x in row) for row in X.tolist()]
