"""Draws docs/pictures/attention.svg: the attention weights of one head of SmolLM2 in a real run.

python docs/pictures/attention.py
"""

from pathlib import Path

import regard

TEXT, LAYER, HEAD = "The pizza came out of the oven and it tasted good", 13, 8
CELL, LEFT, TOP = 46, 96, 84


def main() -> None:
    trace = regard.load("smollm2").trace(TEXT)
    A = trace[f"decoder.{LAYER}.attention.weights"][HEAD].tolist()
    words = [token.strip() for token in trace.tokens]
    size = CELL * len(words)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + size + 24} {TOP + size + 44}" '
        'font-family="Georgia, serif" font-size="15" fill="#222">',
        f'<rect width="{LEFT + size + 24}" height="{TOP + size + 44}" fill="#fff"/>',
    ]
    for i, word in enumerate(words):
        middle = CELL * i + CELL / 2
        bold = ' font-weight="bold"' if word in ("it", "pizza") else ""
        parts.append(f'<text x="{LEFT - 10}" y="{TOP + middle + 5}" text-anchor="end"{bold}>{word}</text>')
        x = LEFT + middle
        parts.append(f'<text transform="translate({x + 4} {TOP - 10}) rotate(-50)"{bold}>{word}</text>')
        parts += [cell(A[i][j], LEFT + CELL * j, TOP + CELL * i) for j in range(i + 1)]
    caption = f"SmolLM2, layer {LAYER}, head {HEAD}: how much each word (row) looks at those before it"
    parts.append(f'<text x="{LEFT}" y="{TOP + size + 28}" font-size="13" fill="#666">{caption}</text>')
    Path(__file__).with_suffix(".svg").write_text("\n".join([*parts, "</svg>"]) + "\n")


def cell(weight: float, x: float, y: float) -> str:
    """A square as dark as its weight, with the figure where it can be read."""
    shade = [round(255 + (dark - 255) * weight) for dark in (11, 83, 148)]
    figure = f"{weight:.2f}".removeprefix("0") if weight >= 0.005 else ""
    ink = "#fff" if weight > 0.5 else "#222"
    return (
        f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="rgb({shade[0]},{shade[1]},{shade[2]})" '
        f'stroke="#ddd" stroke-width=".5"/><text x="{x + CELL / 2 - 1}" y="{y + CELL / 2 + 4}" font-size="12" '
        f'text-anchor="middle" fill="{ink}" font-family="Helvetica, Arial, sans-serif">{figure}</text>'
    )


if __name__ == "__main__":
    main()
