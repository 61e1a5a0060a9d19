"""An expression tree written out: in symbols, in LaTeX, in Python.

In: a tree (nn/expression.py) for one number, its index filled in, and the letters of its names (explain/letters.py). Out:
text. page/web/offline/render.js does the same for exported files.
"""

from collections.abc import Callable, Mapping, Sequence

from regard.nn.expression import At, Call, Expr, Num, Over, Var

LATEX = {"QKᵀ": "(QK^\\top)", "Q′": "Q'", "K′": "K'", "μ": "\\mu", "σ²": "\\sigma^2", "x̂": "\\hat{x}"}
LATEX |= {"ms": "\\overline{x^2}", "γ": "\\gamma", "β": "\\beta", "θ": "\\theta"}
POWERS = {2: "²", 3: "³"}

Fragment = str | At | Num  # text, or a number of the run


def number(x: float) -> str:
    """A number of a run, with four digits."""
    return f"{x:.4g}".replace("inf", "∞")


def constant(x: float) -> str:
    """A constant of a formula, with up to nine digits."""
    return f"{x:.9g}".replace("inf", "∞")


# ── symbols ──────────────────────────────────────────────────────────────────────────────────────────────────────────

PRECEDENCE = {"+": 1, "-": 1, "neg": 1, "·": 2, "weigh": 2, "/": 2, "^": 3, "exp": 3}


def precedence(e: Expr) -> int:
    """How tightly its outermost operation binds; in a context that binds more tightly it is written in brackets."""
    match e:
        case Call("shift", (x, _)):
            return precedence(x)
        case Call():
            return PRECEDENCE.get(e.f, 4)
        case Over():
            return 2 if e.how == "Σ" else 4
        case Num(value, label):
            return 2 if "/" in label else 1 if value < 0 else 4
    return 4


def fragments(e: Expr, times: str = " · ") -> list[Fragment]:
    """The text of an expression, with the numbers of the run that it refers to."""

    def inner(x: Expr, least: int) -> list[Fragment]:
        written = fragments(x, times)
        return ["(", *written, ")"] if precedence(x) < least else written

    match e:
        case Num():
            return [e if e.label else constant(e.value)]
        case Var():
            return [e.name]
        case At():
            return [e]
        case Call("shift", (x, _)):  # what is subtracted in every exponent cancels out
            return fragments(x, times)
        case Call("+" | "-", (a, b)):
            return [*inner(a, 1), f" {e.f} ", *inner(b, 2 if e.f == "-" else 1)]
        case Call("·" | "weigh", (a, b)):
            return [*inner(a, 2), times, *inner(b, 3 if isinstance(b, Over) else 2)]
        case Call("/", (a, b)):
            return [*inner(a, 2), " / ", *inner(b, 2 if isinstance(b, Over) else 3)]
        case Call("^", (a, Num(value))) if value in POWERS:
            return [*inner(a, 4), POWERS[int(value)]]
        case Call("^", (a, b)):
            return [*inner(a, 4), "^", *inner(b, 4)]
        case Call("neg", (a,)):
            return ["-", *inner(a, 3)]
        case Call("exp", (a,)):
            return ["e^", *inner(a, 4)]
        case Call("sqrt", (a,)):
            return ["√(", *fragments(a, times), ")"]
        case Call("//", (a, b)):
            return ["⌊", *inner(a, 2), "/", *inner(b, 3), "⌋"]
        case Call("%", (a, b)):
            return [*inner(a, 2), " mod ", *inner(b, 3)]
        case Call(f, args):
            listed: list[Fragment] = [f"{f}("]
            for i, a in enumerate(args):
                listed += [", "] * (i > 0) + fragments(a, times)
            return [*listed, ")"]
        case Over():
            return [f"{e.how}_{e.var} ", *inner(e.body, 2)]
    raise TypeError(f"{e!r} is not an expression")


def join(listed: Sequence[Fragment], write: Callable[[At | Num], str]) -> str:
    return "".join(part if isinstance(part, str) else write(part) for part in listed)


def latex_letter(letter: str) -> str:
    symbol = LATEX.get(letter) or (f"W_{{{letter[2:]}}}" if letter.startswith("W_") else letter)
    symbol = symbol if len(symbol) == 1 or symbol[0] in "\\(W" or symbol.endswith("'") else f"\\mathrm{{{symbol}}}"
    return symbol.replace("_", "\\_") if "mathrm" in symbol else symbol


class Writer:
    """Writes expressions with the letters of one graph."""

    def __init__(self, letters: Mapping[str, str]) -> None:
        self.letters = letters

    def symbols(self, e: Expr) -> str:
        return join(fragments(e), lambda x: x.label if isinstance(x, Num) else self.element(x.node, x.index))

    def element(self, name: str, index: Sequence[Expr | int]) -> str:
        """One number of an array: S[0, 2, 1]."""
        entries = [str(i) if isinstance(i, int) else join(fragments(i, "·"), str) for i in index]
        return f"{self.letters[name]}[{', '.join(entries)}]" if entries else self.letters[name]

    def latex_element(self, name: str, index: Sequence[Expr | int]) -> str:
        """The same in LaTeX, with subscripts."""
        entries = ",".join(str(i) if isinstance(i, int) else self.latex(i) for i in index)
        return f"{{{latex_letter(self.letters[name])}}}_{{{entries}}}"

    def latex(self, e: Expr) -> str:
        def inner(x: Expr, least: int) -> str:
            return f"({self.latex(x)})" if precedence(x) < least else self.latex(x)

        match e:
            case Num(value, label):
                return latex_number(label or constant(value))
            case Var():
                return e.name.replace("′", "'")
            case At():
                return self.latex_element(e.node, e.index)
            case Call("shift", (x, _)):
                return self.latex(x)
            case Call("+" | "-", (a, b)):
                return f"{inner(a, 1)} {e.f} {inner(b, 2 if e.f == '-' else 1)}"
            case Call("·" | "weigh", (a, b)):
                between = " \\cdot " if isinstance(a, Num) or isinstance(b, Num) else " "
                return f"{inner(a, 2)}{between}{inner(b, 3 if isinstance(b, Over) else 2)}"
            case Call("/", (a, b)):
                return f"\\frac{{{self.latex(a)}}}{{{self.latex(b)}}}"
            case Call("^", (a, b)):
                return f"{inner(a, 4)}^{{{self.latex(b)}}}"
            case Call("neg", (a,)):
                return f"-{inner(a, 3)}"
            case Call("exp", (a,)):
                return f"e^{{{self.latex(a)}}}"
            case Call("sqrt", (a,)):
                return f"\\sqrt{{{self.latex(a)}}}"
            case Call("//", (a, b)):
                return f"\\lfloor {self.latex(a)}/{self.latex(b)} \\rfloor"
            case Call("%", (a, b)):
                return f"{inner(a, 2)} \\bmod {inner(b, 3)}"
            case Call("sin" | "cos" | "tanh" | "max" as f, args):
                return f"\\{f}({', '.join(map(self.latex, args))})"
            case Call(f, args):
                return f"\\mathrm{{{f}}}({', '.join(map(self.latex, args))})"
            case Over():
                over = "\\sum" if e.how == "Σ" else "\\max"
                return f"{over}_{{{e.var}}} {inner(e.body, 2)}"
        raise TypeError(f"{e!r} is not an expression")


def latex_number(text: str) -> str:
    if text.startswith("1/√"):
        return f"\\frac{{1}}{{\\sqrt{{{text[3:]}}}}}"
    if text.startswith("√(") and text.endswith(")"):
        return f"\\sqrt{{{text[2:-1]}}}".replace("π", "\\pi")
    if text.startswith("√"):
        return f"\\sqrt{{{text[1:]}}}"
    return text.replace("∞", "\\infty").replace("ε", "\\varepsilon")


# ── Python ───────────────────────────────────────────────────────────────────────────────────────────────────────────

OPERATORS = {"+": "+", "-": "-", "shift": "-", "·": "*", "/": "/", "^": "**", "//": "//", "%": "%", "≤": "<=", "<": "<"}
OPERATORS |= {"=": "=="}
FUNCTIONS = {"exp": "np.exp", "sqrt": "np.sqrt", "tanh": "np.tanh", "erf": "math.erf", "sin": "np.sin", "cos": "np.cos"}
FUNCTIONS |= {"max": "np.maximum", "and": "np.logical_and", "neg": "-"}


def python(e: Expr, ranges: dict[str, int] | None = None) -> str:
    """Python code that computes the number from `trace`, in float64. ranges: variables that are arrays 0 … n - 1."""
    ranges = ranges or {}
    match e:
        case Num():
            return literal(e.value)
        case Var():
            return f"np.arange({ranges[e.name]})" if e.name in ranges else e.name.replace("′", "_")
        case At():
            return f'np.float64(trace["{e.node}"][{indices(e.index, ranges)}])'
        case Call("if", (condition, then, otherwise)):
            return f"({python(then, ranges)} if {python(condition, ranges)} else {python(otherwise, ranges)})"
        case Call("weigh", (a, b)):
            weight = python(a, ranges)
            return f"np.where({weight} == 0, 0, {weight} * {python(b, ranges)})"
        case Call(f, args) if f in OPERATORS:
            left, right = (python(a, ranges) for a in args)
            return f"({left} {OPERATORS[f]} {right})"
        case Call(f, args):
            return f"{FUNCTIONS[f]}({', '.join(python(a, ranges) for a in args)})"
        case Over() if needs_loop(e.body):
            return f"{'sum' if e.how == 'Σ' else 'max'}({python(e.body)} for {python(Var(e.var))} in range({e.n}))"
        case Over():
            return f"{python(e.body, {e.var: e.n})}.{'sum' if e.how == 'Σ' else 'max'}()"
    raise TypeError(f"{e!r} is not an expression")


def literal(x: float) -> str:
    """The shortest literal for the same number; a whole number without a decimal point."""
    if x == float("-inf"):
        return "-np.inf"
    return str(int(x)) if float(x).is_integer() and abs(x) < 2**53 else repr(float(x))


def needs_loop(e: Expr) -> bool:
    """Whether a sum's body cannot be evaluated on an array of indices: it branches, or contains another sum."""
    match e:
        case Call("if"):
            return True
        case Call("shift", (x, _)):  # the same is subtracted for every index
            return needs_loop(x)
        case Call():
            return any(map(needs_loop, e.args))
    return isinstance(e, Over)


def indices(index: Sequence[Expr], ranges: dict[str, int]) -> str:
    """Index entries; a range is written as a colon, if no other entry depends on it."""
    plain = sum(isinstance(i, Var) and i.name in ranges for i in index) == 1
    plain = plain and all(isinstance(i, Num | Var) for i in index)
    return (
        ", ".join(":" if plain and isinstance(i, Var) and i.name in ranges else integer(i, ranges) for i in index)
        or "..."
    )


def integer(i: Expr, ranges: dict[str, int]) -> str:
    return str(int(i.value)) if isinstance(i, Num) else python(i, ranges)
