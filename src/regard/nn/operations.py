"""The operations that transformers are made of, one class each, in the lectures' notation.

Letters: N tokens (queries) · T keys · d features · h heads · g key/value heads · d_k per head. Arrays may have further axes
in front (a batch); formulas are those of one sequence. A linear map's weight is stored transposed, (out, in), as in
PyTorch; formulas and the page show the lectures' W, (in, out).

The name of an operation (in a graph, on the page, in an exported file) is its class's name in snake case, or `name=…`.
"""

import math
from itertools import pairwise
from typing import Any

from regard.nn.expression import Expr, Num, Over, Var, call, substitute, total, value, where
from regard.nn.mask import Mask
from regard.nn.operation import OPERATIONS, Axes, Index, Operand, Operation, Symbol, arange, cast, library_of
from regard.nn.see import is_compiling

k, j = Var("k"), Var("j")

# ── tables, sums, linear maps ────────────────────────────────────────────────────────────────────────────────────────


class Lookup(Operation):
    """A row of a table for each token."""

    notation = "{E}⟨{ids}⟩"

    def run(self, E: Any, ids: Any, *, offset: int = 0) -> Any:
        return E[ids + offset if offset else ids]  # (…, N, d)

    def axes(self, E: Symbol, ids: Symbol, *, offset: int = 0) -> Axes:
        return (*ids.axes, E.axes[-1])

    def formula(self, at: Index, E: Operand, ids: Operand, *, offset: int = 0) -> Expr:
        *i, c = at
        return E(ids(*i) + offset if offset else ids(*i), c)


class Add(Operation):
    """A sum of arrays, element by element: a residual connection, or embeddings added up."""

    notation = "{X}"

    def run(self, *X: Any) -> Any:
        return sum(X[1:], X[0])

    def axes(self, *X: Symbol) -> Axes:
        return max((x.axes for x in X), key=len)

    def formula(self, at: Index, *X: Operand) -> Expr:
        summands = [x(*at[len(at) - len(x.sizes) :]) for x in X]
        return sum(summands[1:], summands[0])


class Copy(Operation):
    """The same array under another name."""

    notation = "{X}"
    view = True

    def run(self, X: Any) -> Any:
        return X

    def axes(self, X: Symbol) -> Axes:
        return X.axes

    def formula(self, at: Index, X: Operand) -> Expr:
        return X(*at)


class Scale(Operation):
    """X multiplied by a constant."""

    notation = "{X} · {label}|{X} · {by:.4g}"

    def run(self, X: Any, *, by: float, label: str = "") -> Any:
        return X * by

    def axes(self, X: Symbol, *, by: float, label: str = "") -> Axes:
        return X.axes

    def formula(self, at: Index, X: Operand, *, by: float, label: str = "") -> Expr:
        return X(*at) * Num(by, label)


class Linear(Operation):
    """X W + b: each token's vector times a matrix."""

    notation = "{X} {W} + {b}|{X} {W}"

    def run(self, X: Any, W: Any, b: Any = None) -> Any:
        XW = X @ W.T  # (…, N, out)
        return XW if b is None else XW + b

    def axes(self, X: Symbol, W: Symbol, b: Symbol | None = None) -> Axes:
        return (*X.axes[:-1], W.axes[-1])

    def formula(self, at: Index, X: Operand, W: Operand, b: Operand | None = None) -> Expr:
        *i, c = at
        XW = total("k", W.sizes[0], X(*i, k) * W(k, c))
        return XW if b is None else XW + b(c)


class Pick(Operation):
    """The vector of one token, which represents the whole sequence. In a batch, each sequence may have another row."""

    notation = "{X}, token {row}"
    view = True

    def run(self, X: Any, *, row: Any) -> Any:
        return X[..., row, :] if isinstance(row, int) else X[arange(0, len(X), X), row]  # (…, d)

    def axes(self, X: Symbol, *, row: Any) -> Axes:
        return (*X.axes[:-2], X.axes[-1])

    def formula(self, at: Index, X: Operand, *, row: Any) -> Expr:
        return X(row % X.sizes[0], *at)


class Slice(Operation, name="some"):
    """A slice of the features: first … last - 1."""

    notation = "{X}, {first} to {last}"
    view = True

    def run(self, X: Any, *, first: int, last: int) -> Any:
        return X[..., first:last]

    def axes(self, X: Symbol, *, first: int, last: int) -> Axes:
        return (*X.axes[:-1], (X.axes[-1][0], last - first))

    def formula(self, at: Index, X: Operand, *, first: int, last: int) -> Expr:
        return X(*at[:-1], at[-1] + first if first else at[-1])


class Concat(Operation, name="beside"):
    """Features of several arrays, concatenated."""

    notation, between = "({X})", " ⊕ "

    def run(self, *X: Any) -> Any:
        return library_of(X[0]).concatenate(X, -1)

    def axes(self, *X: Symbol) -> Axes:
        return (*X[0].axes[:-1], ("feature", sum(x.shape[-1] for x in X)))

    def formula(self, at: Index, *X: Operand) -> Expr:
        *i, c = at
        first, e = 0, X[0](*i, c)
        for before, x in pairwise(X):
            first += before.sizes[-1]
            e = where(c < first, e, x(*i, c - first))
        return e


class Stack(Operation):
    """The steps of a recurrent network, stacked: a row for each step."""

    notation, between = "{rows}", "; "
    view = True

    def run(self, *rows: Any, tokens: str) -> Any:
        return library_of(rows[0]).stack(rows, -2)

    def axes(self, *rows: Symbol, tokens: str) -> Axes:
        return ((tokens, len(rows)), *rows[0].axes)

    def formula(self, at: Index, *rows: Operand, tokens: str) -> Expr:
        t, *i = at
        chosen = [rows[int(t.value)]] if isinstance(t, Num) else rows
        made = [row(*i) if row.symbol.name else row.symbol.formula(tuple(i)) for row in chosen]
        return made[0] if isinstance(t, Num) else call("step", t, *made)


class OneHead(Operation):
    """The same array with an axis of heads of size 1."""

    notation = "{X}"
    view = True

    def run(self, X: Any) -> Any:
        return X[..., None, :, :]

    def axes(self, X: Symbol) -> Axes:
        *before, i, j = X.axes
        return (*before, ("head", 1), i, j)

    def formula(self, at: Index, X: Operand) -> Expr:
        return X(*at[1:])


class Squeeze(Operation, name="only"):
    """The same array without its last axis, which has size 1."""

    notation = "{X}"
    view = True

    def run(self, X: Any) -> Any:
        return X[..., 0]

    def axes(self, X: Symbol) -> Axes:
        return X.axes[:-1]

    def formula(self, at: Index, X: Operand) -> Expr:
        return X(*at, 0)


class Blend(Operation):
    """(1 - z) n + z h: the update gate z interpolates between the candidate and the previous state."""

    notation = "(1 - {z}) ⊙ {n} + {z} ⊙ {h}"

    def run(self, z: Any, n: Any, h: Any) -> Any:
        return (1 - z) * n + z * h

    def axes(self, z: Symbol, n: Symbol, h: Symbol) -> Axes:
        return z.axes

    def formula(self, at: Index, z: Operand, n: Operand, h: Operand) -> Expr:
        return (1 - z(*at)) * n(*at) + z(*at) * h(*at)


# ── positions ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Positions(Operation):
    """0, 1, 2, … counting tokens only, so that padding on either side changes nothing. past: tokens in the KV cache."""

    notation = "0 … N - 1"

    def run(self, ids: Any, *, real: Any = None, past: int = 0) -> Any:
        N = ids.shape[-1]
        if real is None:
            p = arange(past, past + N, ids)
            return p if ids.ndim == 1 else p[None]  # (N,) or (1, N)
        return (cast(real, "int64").cumsum(-1) - 1).clip(0)[:, -N:]  # (B, N)

    def axes(self, ids: Symbol, *, real: Any = None, past: int = 0) -> Axes:
        return ids.axes

    def formula(self, at: Index, ids: Operand, *, real: Any = None, past: int = 0) -> Expr:
        return at[-1] + past if past else at[-1]


class Zeros(Operation):
    """0 everywhere, in the shape of another array."""

    notation = "0"

    def run(self, X: Any) -> Any:
        return library_of(X).zeros_like(X)

    def axes(self, X: Symbol) -> Axes:
        return X.axes

    def formula(self, at: Index, X: Operand) -> Expr:
        return Num(0)


class Sinusoid(Operation):
    """sin and cos of the position at falling frequencies: PE(p, 2i) = sin(p / 10000^(2i/d)), PE(p, 2i+1) = cos(…).

    steps: over how many the frequencies fall to 1/10000. halves: all sines first, then all cosines.
    """

    notation = "sin and cos of p / 10000^(2i/{d}), p = {positions}"

    def run(self, positions: Any, *, d: int, steps: float, halves: bool = False, offset: int = 0) -> Any:
        xp, half = library_of(positions), d // 2
        pair = cast(arange(0, (d + 1) // 2, positions), "float64")
        angle = (positions + offset)[..., None] * xp.exp(-math.log(10000.0) * pair / steps)  # (…, N, ⌈d/2⌉)
        sin, cos = xp.sin(angle), xp.cos(angle)[..., :half]
        table = xp.concatenate([sin, cos], -1)
        if not halves:
            table[..., 0::2], table[..., 1::2] = sin, cos
        return cast(table, "float32")

    def axes(self, positions: Symbol, *, d: int, steps: float, halves: bool = False, offset: int = 0) -> Axes:
        return (*positions.axes, ("feature", d))

    def formula(
        self, at: Index, positions: Operand, *, d: int, steps: float, halves: bool = False, offset: int = 0
    ) -> Expr:
        (i, c), first = at, (d + 1) // 2
        pair = c % first if halves else c // 2
        angle = (positions(i) + offset) / call("^", 10000, pair / steps)
        return where(c < first if halves else call("=", c % 2, 0), call("sin", angle), call("cos", angle))


class Cosine(Operation):
    """cos(p · θ): the cosine of the angle by which position p rotates each pair. The angle is a float32."""

    notation = "cos({positions} · {theta})"

    def run(self, positions: Any, theta: Any) -> Any:
        return _of_angle(positions, theta, "cos")  # (…, N, pairs)

    def axes(self, positions: Symbol, theta: Symbol) -> Axes:
        return (*positions.axes, theta.axes[-1])

    def formula(self, at: Index, positions: Operand, theta: Operand) -> Expr:
        *i, c = at
        return call("cos", positions(*i) * theta(c))


class Sine(Operation):
    """sin(p · θ): the sine of the angle by which position p rotates each pair."""

    notation = "sin({positions} · {theta})"

    def run(self, positions: Any, theta: Any) -> Any:
        return _of_angle(positions, theta, "sin")

    def axes(self, positions: Symbol, theta: Symbol) -> Axes:
        return (*positions.axes, theta.axes[-1])

    def formula(self, at: Index, positions: Operand, theta: Operand) -> Expr:
        *i, c = at
        return call("sin", positions(*i) * theta(c))


def _of_angle(positions: Any, theta: Any, function: str) -> Any:
    """cos or sin of p · θ, rounded once, from float64: processors differ in the last bit of a float32's sine."""
    angle = cast(positions, theta)[..., None] * theta
    return cast(getattr(library_of(theta), function)(cast(angle, "float64")), theta)


class Rotate(Operation):
    """Rotary positions (RoPE): the pair (x_c, x_{c+m}) of the first 2m dimensions rotated by its angle; the others stay."""

    notation = "rotate({X})"

    def run(self, X: Any, cos: Any, sin: Any) -> Any:
        xp, m = library_of(X), cos.shape[-1]
        cos, sin = cos[..., None, :, :], sin[..., None, :, :]  # the same for every head
        x, y, rest = X[..., :m], X[..., m : 2 * m], X[..., 2 * m :]
        rotated = [x * cos - y * sin, y * cos + x * sin] + [rest] * (2 * m < X.shape[-1])
        return cast(xp.concatenate(rotated, -1), X)  # (…, h, N, d_k)

    def axes(self, X: Symbol, cos: Symbol, sin: Symbol) -> Axes:
        return X.axes

    def formula(self, at: Index, X: Operand, cos: Operand, sin: Operand) -> Expr:
        (h, i, c), m = at, cos.sizes[-1]
        first = X(h, i, c) * cos(i, c) - X(h, i, c + m) * sin(i, c)
        second = X(h, i, c) * cos(i, c - m) + X(h, i, c - m) * sin(i, c - m)
        rotated = where(c < m, first, second)
        return rotated if 2 * m == X.sizes[-1] else where(c < 2 * m, rotated, X(h, i, c))


# ── attention ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Split(Operation):
    """Features split into heads: (…, N, h·d_k) → (…, h, N, d_k)."""

    notation = "{X}, in {heads} heads"
    view = True

    def run(self, X: Any, *, heads: int, name: str = "head") -> Any:
        return X.reshape(*X.shape[:-1], heads, -1).swapaxes(-2, -3)

    def axes(self, X: Symbol, *, heads: int, name: str = "head") -> Axes:
        return (*X.axes[:-2], (name, heads), X.axes[-2], ("channel", X.shape[-1] // heads))

    def formula(self, at: Index, X: Operand, *, heads: int, name: str = "head") -> Expr:
        h, i, c = at
        return X(i, h * (X.sizes[-1] // heads) + c)


class Join(Operation):
    """Heads concatenated again: (…, h, N, d_k) → (…, N, h·d_k)."""

    notation = "[{Z}₁ … {Z}ₕ]"
    view = True

    def run(self, Z: Any) -> Any:
        *_, h, N, d_k = Z.shape
        return Z.swapaxes(-2, -3).reshape(*Z.shape[:-3], N, h * d_k)

    def axes(self, Z: Symbol) -> Axes:
        *batch, (_, h), tokens, (_, d_k) = Z.axes
        return (*batch, tokens, ("feature", h * d_k))

    def formula(self, at: Index, Z: Operand) -> Expr:
        (i, c), d_k = at, Z.sizes[-1]
        return Z(c // d_k, i, c % d_k)


class Dot(Operation):
    """Q Kᵀ: how well each query fits each key. Each of the g key heads serves h/g query heads (grouped-query attention)."""

    notation = "{Q} {K}ᵀ"

    def run(self, Q: Any, K: Any) -> Any:
        K = repeat_kv(K, Q.shape[-3]) if Q.ndim > 2 else K
        return Q @ K.swapaxes(-1, -2)  # (…, h, N, T)

    def axes(self, Q: Symbol, K: Symbol) -> Axes:
        return (*Q.axes[:-1], K.axes[-2])

    def formula(self, at: Index, Q: Operand, K: Operand) -> Expr:
        (h, i, j), c = at, Var("c")
        return total("c", Q.sizes[-1], Q(h, i, c) * K(group(h, Q, K), j, c))


def repeat_kv(K: Any, heads: int) -> Any:
    """Key/value heads repeated for the query heads that share them: (…, g, T, d_k) → (…, h, T, d_k)."""
    g = K.shape[-3]
    if g == heads:
        return K
    spread = library_of(K).broadcast_to(K[..., None, :, :], (*K.shape[:-2], heads // g, *K.shape[-2:]))
    return spread.reshape(*K.shape[:-3], heads, *K.shape[-2:])


def group(h: Expr, Q: Operand, K: Operand) -> Expr:
    """The key/value head that query head h uses."""
    each = Q.sizes[-3] // K.sizes[-3]
    return h if each == 1 else h // each


class Cap(Operation):
    """Soft-capping: most · tanh(x / most), within ±most."""

    notation = "{most} · tanh({X} / {most})"

    def run(self, X: Any, *, most: float) -> Any:
        return most * library_of(X).tanh(X / most)

    def axes(self, X: Symbol, *, most: float) -> Axes:
        return X.axes

    def formula(self, at: Index, X: Operand, *, most: float) -> Expr:
        return most * call("tanh", X(*at) / most)


class MaskScores(Operation, name="mask"):
    """-∞ where a query may not attend, whatever the score was: NaN - ∞ would be NaN."""

    notation = "mask({S})"

    def run(self, S: Any, *, by: Mask) -> Any:
        visible = by.matrix(S)
        return S if visible is None else library_of(S).where(visible, S, -math.inf)

    def axes(self, S: Symbol, *, by: Mask) -> Axes:
        return S.axes

    def formula(self, at: Index, S: Operand, *, by: Mask) -> Expr:
        *_, i, j = at
        if not by.causal:
            return S(*at)
        visible = j <= i if by.window is None else call("and", j <= i, i - j < by.window)
        return where(visible, S(*at), -math.inf)


class Softmax(Operation):
    """e^x over its sum: weights that add up to 1. The maximum is subtracted from every exponent, where it cancels."""

    notation = "softmax({S})"

    def run(self, S: Any) -> Any:
        xp = library_of(S)
        e = xp.exp(S - xp.amax(S, -1)[..., None])
        return e / e.sum(-1)[..., None]

    def axes(self, S: Symbol) -> Axes:
        return S.axes

    def formula(self, at: Index, S: Operand) -> Expr:
        *before, j = at
        largest = Over("max", "k", S.sizes[-1], S(*before, k))

        def e(x: Expr) -> Expr:
            return call("exp", call("shift", x, largest))

        return e(S(*before, j)) / total("k", S.sizes[-1], e(S(*before, k)))


class Mix(Operation):
    """A V: the values, weighted by each token's attention and summed.

    A key of weight 0 contributes 0 even if its value is NaN or infinite: 0 · NaN would be NaN."""

    notation = "{A} {V}"

    def run(self, A: Any, V: Any) -> Any:
        xp, V = library_of(A), cast(V, A)
        if A.ndim < V.ndim:  # one query
            return self.run(A[..., None, :], V)[..., 0, :]
        V = repeat_kv(V, A.shape[-3]) if A.ndim > 2 else V
        Z = A @ V  # (…, h, N, d_k)
        if is_compiling() or finite(Z):
            return Z
        odd = ~xp.isfinite(V)
        attended = cast(A != 0, A) @ cast(odd, A) > 0  # where a query gives such a value a weight
        return xp.where(attended, Z, A @ xp.where(odd, 0.0, V))

    def axes(self, A: Symbol, V: Symbol) -> Axes:
        return (*A.axes[:-1], V.axes[-1])

    def formula(self, at: Index, A: Operand, V: Operand) -> Expr:
        *i, c = at
        before = (group(i[0], A, V),) if len(V.sizes) > 2 else ()
        return total("j", A.sizes[-1], call("weigh", A(*i, j), V(*before, j, c)))


def finite(X: Any) -> bool:
    """Whether all elements are finite. If their sum is, they are, and it is faster to compute; a sum may also overflow."""
    return math.isfinite(X.sum().item()) or bool(library_of(X).isfinite(X).all())


# ── norms ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Mean(Operation):
    """μ: the mean of a token's features."""

    notation = "mean of {X}"

    def run(self, X: Any) -> Any:
        return X.mean(-1)[..., None]  # (…, N, 1)

    def axes(self, X: Symbol) -> Axes:
        return (*X.axes[:-1], ("one", 1))

    def formula(self, at: Index, X: Operand) -> Expr:
        return total("k", X.sizes[-1], X(*at[:-1], k)) / X.sizes[-1]


class MeanSquare(Operation):
    """The mean of the squares of a token's features."""

    notation = "mean of {X}²"

    def run(self, X: Any) -> Any:
        return (X * X).mean(-1)[..., None]

    def axes(self, X: Symbol) -> Axes:
        return (*X.axes[:-1], ("one", 1))

    def formula(self, at: Index, X: Operand) -> Expr:
        return total("k", X.sizes[-1], X(*at[:-1], k) ** 2) / X.sizes[-1]


class Variance(Operation):
    """σ²: the mean of the squared distances from the mean (divided by d, not d - 1)."""

    notation = "mean of ({X} - {mean})²"

    def run(self, X: Any, mean: Any) -> Any:
        centred = X - mean
        return (centred * centred).mean(-1)[..., None]

    def axes(self, X: Symbol, mean: Symbol) -> Axes:
        return (*X.axes[:-1], ("one", 1))

    def formula(self, at: Index, X: Operand, mean: Operand) -> Expr:
        *i, _ = at
        return total("k", X.sizes[-1], (X(*i, k) - mean(*i, 0)) ** 2) / X.sizes[-1]


class Normalise(Operation):
    """(x - μ) / √(σ² + ε), or x / √(mean square + ε)."""

    notation = "({X} - {mean}) / √({spread} + ε)|{X} / √({spread} + ε)"

    def run(self, X: Any, spread: Any, mean: Any = None, *, eps: float) -> Any:
        return (X if mean is None else X - mean) / library_of(X).sqrt(spread + eps)

    def axes(self, X: Symbol, spread: Symbol, mean: Symbol | None = None, *, eps: float) -> Axes:
        return X.axes

    def formula(self, at: Index, X: Operand, spread: Operand, mean: Operand | None = None, *, eps: float) -> Expr:
        *i, _ = at
        centred = X(*at) if mean is None else X(*at) - mean(*i, 0)
        return centred / call("sqrt", spread(*i, 0) + Num(eps, "ε"))


class Affine(Operation):
    """γ x + β: a learned gain and bias. plus: a constant added to γ (Gemma stores γ - 1)."""

    notation = "{X} ⊙ {gamma} + {beta}|{X} ⊙ {gamma}"

    def run(self, X: Any, gamma: Any, beta: Any = None, *, plus: float = 0.0) -> Any:
        scaled = X * (gamma + plus if plus else gamma)
        return scaled if beta is None else scaled + beta

    def axes(self, X: Symbol, gamma: Symbol, beta: Symbol | None = None, *, plus: float = 0.0) -> Axes:
        return X.axes

    def formula(self, at: Index, X: Operand, gamma: Operand, beta: Operand | None = None, *, plus: float = 0.0) -> Expr:
        c = at[-1]
        scaled = X(*at) * (gamma(c) + plus if plus else gamma(c))
        return scaled if beta is None else scaled + beta(c)


# ── of the MLP ──────────────────────────────────────────────────────────────────────────────────────────────────────

x = Var("x")
ACTIVATIONS: dict[str, Expr] = {  # of x
    "gelu": x * ((1 + call("erf", x / Num(math.sqrt(2), "√2"))) / 2),
    "gelu_tanh": x / 2 * (1 + call("tanh", Num(math.sqrt(2 / math.pi), "√(2/π)") * (x + 0.044715 * x**3))),
    "relu": call("max", x, 0),
    "silu": x / (1 + call("exp", -x)),
    "tanh": call("tanh", x),
    "sigmoid": 1 / (1 + call("exp", -x)),
}


class Activation(Operation):
    """The activation function, applied to each element."""

    notation = "{function}({X})"

    def run(self, X: Any, *, function: str) -> Any:
        return cast(value(ACTIVATIONS[function], lambda name: X, {"x": X}), X)

    def axes(self, X: Symbol, *, function: str) -> Axes:
        return X.axes

    def formula(self, at: Index, X: Operand, *, function: str) -> Expr:
        return substitute(ACTIVATIONS[function], {"x": X(*at)})


class Gate(Operation):
    """gate ⊙ X, element by element: the gate says how much of X passes."""

    notation = "{gate} ⊙ {X}"

    def run(self, gate: Any, X: Any) -> Any:
        return gate * X

    def axes(self, gate: Symbol, X: Symbol) -> Axes:
        return X.axes

    def formula(self, at: Index, gate: Operand, X: Operand) -> Expr:
        return gate(*at) * X(*at)


lookup, add, copy, scale, linear, pick = (OPERATIONS[n] for n in ("lookup", "add", "copy", "scale", "linear", "pick"))
positions, zeros, sinusoid = (OPERATIONS[n] for n in ("positions", "zeros", "sinusoid"))
cosine, sine, rotate = (OPERATIONS[n] for n in ("cosine", "sine", "rotate"))
split, join, dot, cap, mask, softmax, mix = (
    OPERATIONS[n] for n in ("split", "join", "dot", "cap", "mask", "softmax", "mix")
)
mean, mean_square, variance, normalise, affine = (
    OPERATIONS[n] for n in ("mean", "mean_square", "variance", "normalise", "affine")
)
activation, gate, blend = (OPERATIONS[n] for n in ("activation", "gate", "blend"))
slice_features, concat, squeeze = (OPERATIONS[n] for n in ("some", "beside", "only"))
stack, one_head = (OPERATIONS[n] for n in ("stack", "one_head"))
