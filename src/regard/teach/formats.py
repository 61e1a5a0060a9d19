"""The formats of worksheets by name, for the command line and the page."""

from collections.abc import Callable

from regard.teach.gift import gift
from regard.teach.handout import handout
from regard.teach.moodle import moodle_xml
from regard.teach.self_check import self_check

# Each takes a trace and seed, level, students and model by name.
FORMATS: dict[str, Callable[..., str]] = {"html": handout, "check": self_check, "moodle": moodle_xml, "gift": gift}
