"""Dates and hours, English and French: order, articles and prepositions all differ.

The day of the week is drawn apart from the date, so that it has to be read rather than worked out.
"""

from dataclasses import dataclass

from toytext.bilingual import numbers
from toytext.draw import Dice

MONTHS = (
    ("January", "janvier", 31),
    ("February", "février", 29),
    ("March", "mars", 31),
    ("April", "avril", 30),
    ("May", "mai", 31),
    ("June", "juin", 30),
    ("July", "juillet", 31),
    ("August", "août", 31),
    ("September", "septembre", 30),
    ("October", "octobre", 31),
    ("November", "novembre", 30),
    ("December", "décembre", 31),
)
WEEKDAYS = (
    ("Monday", "lundi"),
    ("Tuesday", "mardi"),
    ("Wednesday", "mercredi"),
    ("Thursday", "jeudi"),
    ("Friday", "vendredi"),
    ("Saturday", "samedi"),
    ("Sunday", "dimanche"),
)
YEARS = (1900, 2035)
MINUTES = (  # after the hour, or before the next one
    ("past", "five", "cinq"),
    ("past", "ten", "dix"),
    ("past", "a quarter", "et quart"),
    ("past", "twenty", "vingt"),
    ("past", "twenty-five", "vingt-cinq"),
    ("past", "half", "et demie"),
    ("to", "twenty-five", "moins vingt-cinq"),
    ("to", "twenty", "moins vingt"),
    ("to", "a quarter", "moins le quart"),
    ("to", "ten", "moins dix"),
    ("to", "five", "moins cinq"),
)
PARTS_OF_DAY = (
    ("in the morning", "du matin", range(1, 12)),
    ("in the afternoon", "de l'après-midi", range(1, 6)),
    ("in the evening", "du soir", range(6, 12)),
)


@dataclass(frozen=True)
class Date:
    day: int
    month: int  # 0 is January
    year: int | None = None
    weekday: int | None = None  # 0 is Monday
    american: bool = False

    @property
    def en(self) -> str:
        month, comma = MONTHS[self.month][0], "," if self.american and self.year else ""
        day = f"{month} {self.day}" if self.american else f"{self.day} {month}"
        weekday = "" if self.weekday is None else f"{WEEKDAYS[self.weekday][0]}, "
        return f"{weekday}{day}{comma}" + (f" {self.year}" if self.year else "")

    @property
    def fr(self) -> str:
        weekday = "" if self.weekday is None else f"{WEEKDAYS[self.weekday][1]} "
        day = "1er" if self.day == 1 else str(self.day)
        return f"le {weekday}{day} {MONTHS[self.month][1]}" + (f" {self.year}" if self.year else "")


def date(dice: Dice) -> tuple[str, str]:
    month = dice.below(12)
    made = Date(
        day=dice.number(1, MONTHS[month][2]),
        month=month,
        year=dice.number(*YEARS) if dice.chance(0.7) else None,
        weekday=dice.below(7) if dice.chance(0.5) else None,
        american=dice.chance(0.5),
    )
    return made.en, made.fr


def clock(hour: int, minutes: int | None) -> tuple[str, str]:
    """The hour named, 1 to 11 (0 is midnight, 12 noon, both sharp), and a row of `MINUTES`, or None for sharp."""
    if hour in (0, 12):
        return ("noon", "midi") if hour else ("midnight", "minuit")
    if minutes is None:
        return f"{numbers.english(hour)} o'clock", _hours(hour)
    side, en, fr = MINUTES[minutes]
    return f"{en} {side} {numbers.english(hour)}", f"{_hours(hour)} {fr}"


def _hours(hour: int) -> str:
    return f"{numbers.french(hour, feminine=True)} heure" + ("s" if hour > 1 else "")


def time_of_day(dice: Dice) -> tuple[str, str]:
    """A time as it is said, "ten past three in the afternoon"."""
    hour = dice.number(0, 12)
    minutes = dice.below(len(MINUTES)) if dice.chance(0.8) else None
    en, fr = clock(hour, minutes)
    if hour in (0, 12) or dice.chance(0.4):
        return en, fr
    part_en, part_fr, _ = dice.pick([part for part in PARTS_OF_DAY if hour in part[2]])
    return f"{en} {part_en}", f"{fr} {part_fr}"


def what_time_it_is(dice: Dice) -> tuple[str, str]:
    en, fr = time_of_day(dice)
    return f"It is {en}.", f"Il est {fr}."


def moment(dice: Dice) -> tuple[str, str]:
    """When something in the past happened, as the end of a sentence."""
    kind = dice.below(5)
    if kind == 0:
        en, fr = date(dice)
        return f"on {en}", fr
    if kind == 1:
        en, fr = dice.pick(WEEKDAYS)
        return f"on {en}", fr
    if kind == 2:
        month_en, month_fr, _ = dice.pick(MONTHS)
        return f"in {month_en}", f"en {month_fr}"
    if kind == 3:
        en, fr = clock(dice.number(0, 12), None)
        return f"at {en}", f"à {fr}"
    return dice.pick((("yesterday", "hier"), ("last night", "hier soir"), ("this morning", "ce matin")))
