"""Worksheets as Moodle XML: for every student a cloze question, which is the whole sheet, and a multiple choice.

In: a trace, a seed, a level and for how many students. Out: the text of an XML file for Moodle's import. All of a sheet's
numbers are fields of its one cloze question; the key is the feedback that Moodle shows afterwards.
"""

from xml.sax.saxutils import escape

from regard.explain.trace import Trace
from regard.teach.handout import PARTS, Drawing, introduction, reference, rounding
from regard.teach.quiz import Choice, category, category_path, key_tables, most_looked_at, printable, styled, title
from regard.teach.worksheet import Blank, Exercise, exercises, tolerance


def moodle_xml(trace: Trace, *, seed: int = 0, level: str = "all", students: int = 1, model: str = "") -> str:
    made = exercises(trace, seed, level, students)
    choices = [choice for e in made if (choice := most_looked_at(e, model))]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<quiz>", category_element(category(model, f"sheets ({level})"))]
    lines += [cloze(e, model) for e in made]
    lines += [category_element(choices[0].category)] if choices else []
    lines += [multiple_choice(choice) for choice in choices]
    return "\n".join([*lines, "</quiz>", ""])


def category_element(names: tuple[str, ...]) -> str:
    return f'<question type="category"><category>{text(category_path(names))}</category></question>'


def cloze(e: Exercise, model: str) -> str:
    tables = "".join(part(e, FIELDS) for part in PARTS.values())
    html = styled(introduction(e, model) + rounding(key=False) + tables)
    return f"""<question type="cloze">
<name>{text(title(e))}</name>
<questiontext format="html">{text(html)}</questiontext>
<generalfeedback format="html">{text(key_tables(e))}</generalfeedback>
</question>"""


def field(e: Exercise, blank: Blank) -> str:
    answer = e.answer(blank)
    return f"<td>{{1:NUMERICAL:={answer}:{tolerance(answer)}}}</td>"


FIELDS = Drawing(field, reference)


def multiple_choice(question: Choice) -> str:
    answers = "\n".join(
        f'<answer fraction="{100 if right else 0}" format="html">{text(option)}</answer>'
        for option, right in question.options
    )
    return f"""<question type="multichoice">
<name>{text(question.name)}</name>
<questiontext format="html">{text(question.text)}</questiontext>
<generalfeedback format="html">{text(question.feedback)}</generalfeedback>
<defaultgrade>1</defaultgrade>
<single>true</single>
<shuffleanswers>true</shuffleanswers>
<answernumbering>none</answernumbering>
{answers}
</question>"""


def text(words: str) -> str:
    """A text element; HTML stays legible in it, as CDATA."""
    words = printable(words)
    if "<" not in words and "&" not in words:
        return f"<text>{escape(words)}</text>"
    return "<text><![CDATA[" + words.replace("]]>", "]]]]><![CDATA[>") + "]]></text>"
