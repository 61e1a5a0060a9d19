"""What code prints, beside what a page says it prints: words must be equal, numbers as near as they are written."""

import re

NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d*)?(?:e[+-]?\d+)?")


def differences(printed: str, shown: str) -> list[str]:
    """Where they differ. A number may be off by one and a half units of its last place, or by 10⁻⁵ of itself: other
    processors round otherwise, and float32 has seven digits."""
    found = []
    lines, expected = printed.rstrip().splitlines(), shown.rstrip().splitlines()
    if len(lines) != len(expected):
        found.append(f"{len(lines)} lines instead of {len(expected)}")
    for line, wanted in zip(lines, expected, strict=False):
        words, others = (" ".join(NUMBER.sub(" # ", text).split()) for text in (line, wanted))
        numbers, figures = NUMBER.findall(line), NUMBER.findall(wanted)
        near = len(numbers) == len(figures) and all(map(close, numbers, figures))
        if words != others or not near:
            found.append(f"{line!r} instead of {wanted!r}")
    return found


def close(number: str, shown: str) -> bool:
    if not re.search(r"[.e]", shown):
        return number.replace(",", "") == shown.replace(",", "")
    unit = max(last_place(number), last_place(shown))
    found, expected = (float(text.replace(",", "")) for text in (number, shown))
    return abs(found - expected) <= max(1.5 * unit, 1e-5 * abs(expected))


def last_place(number: str) -> float:
    """1 in the last digit: 0.001 for 0.639. numpy writes 0.000 as "0.", which counts as 0.00."""
    digits, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - (len(digits.partition(".")[2]) or 2))
