"""Worksheets as GIFT, the plain-text question format that Moodle and others import: a question per number, and a choice.

In: a trace, a seed, a level and for how many students. Out: the text of a file. GIFT has no question with several numbers,
so each blank of a sheet is a question of its own, with the tables that it needs.
"""

from regard.explain.trace import Trace
from regard.teach.quiz import Choice, Number, category_path, most_looked_at, one_number, printable
from regard.teach.worksheet import exercises, tolerance

SPECIAL = "\\~=#{}:"


def gift(trace: Trace, *, seed: int = 0, level: str = "all", students: int = 1, model: str = "") -> str:
    made = exercises(trace, seed, level, students)
    questions: list[Number | Choice] = [one_number(e, blank, model) for e in made for blank in e.asked()]
    questions += [choice for e in made if (choice := most_looked_at(e, model))]
    by_category: dict[tuple[str, ...], list[str]] = {}
    for question in questions:
        by_category.setdefault(question.category, []).append(written(question))
    blocks = []
    for names, written_ones in by_category.items():
        # Of all escapes, a category's name has only that of the backslash.
        blocks += ["$CATEGORY: " + category_path(names).replace("\\", "\\\\"), *written_ones]
    return "\n\n".join(blocks) + "\n"


def written(question: Number | Choice) -> str:
    """In one line: a blank line would end the question, and a line that begins with // would be left out."""
    if isinstance(question, Number):
        answers = f"#{question.answer}:{tolerance(question.answer)}"
    else:
        answers = " ".join(f"{'=' if right else '~'}{escaped(option)}" for option, right in question.options)
    feedback = f"####{escaped(question.feedback)}"
    return f"::{escaped(question.name)}::[html]{escaped(question.text)}{{{answers}{feedback}}}"


def escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in SPECIAL else c for c in printable(text))
