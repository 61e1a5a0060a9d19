"""The adjectives of the toy translation: forms, where they stand, and what they can be said of.

A row of the table is `english french place rank kinds`. French forms are `masculine/feminine/before_a_vowel` where they
are irregular; a phrase such as `en_bois` never changes. Place: `pre` before the French noun, `post` after it, `attr`
after it and never alone ("the law is economic"), `ord` before it with a definite article, `pred` never beside a noun.
English puts adjectives in the order of their ranks:

    0 order   1 quality   2 size   3 age   4 state and shape   5 colour   6 origin   7 material   8 domain

and French puts those that follow the noun in the opposite order. Ranks 1 to 3 can be more or less; a comparative is
given after a colon where English has one word for it, and a dash where it is better not compared. The kinds are those
of nouns.
"""

from dataclasses import dataclass
from functools import cache

from toytext.bilingual import french
from toytext.bilingual.nouns import Noun


@dataclass(frozen=True)
class Adjective:
    en: str
    comparative: str
    masculine: str
    feminine: str
    before_vowel: str  # the masculine singular before a vowel: bel, nouvel, vieil
    place: str
    rank: int
    kinds: frozenset[str]

    @property
    def precedes(self) -> bool:
        return self.place in ("pre", "ord")

    @property
    def gradable(self) -> bool:
        return 1 <= self.rank <= 3

    @property
    def comparable(self) -> bool:
        return self.gradable and self.comparative != "-"

    def fits(self, noun: Noun) -> bool:
        return self.place == "ord" or bool(self.kinds & noun.kinds)

    def agreed(self, gender: str, many: bool, following: str = "") -> str:
        """The form for a gender and number, before the word that follows."""
        if " " in self.masculine:
            return self.masculine
        if gender == "f":
            return self.feminine + ("s" if many else "")
        if many:
            return french.plural(self.masculine)
        return self.before_vowel if following and french.opens_with_vowel(following) else self.masculine


def _adjective(row: str) -> Adjective:
    en, fr, place, rank, kinds = row.split()
    base, _, comparative = en.partition(":")
    masculine, feminine, before_vowel, *_ = [*fr.replace("_", " ").split("/"), "", ""]
    return Adjective(
        base,
        comparative or f"more {base}",
        masculine,
        feminine or french.feminine(masculine),
        before_vowel or masculine,
        place,
        int(rank),
        frozenset(kinds),
    )


TABLE = """
first premier ord 0 -
last dernier ord 0 -
big:bigger grand pre 2 ATWVLUN
small:smaller petit pre 2 PATWVLUNFX
little:- petit pre 2 PATWVLUNF
tall:taller grand pred 2 P
beautiful beau/belle/bel pre 1 PAWVLNT
pretty:prettier joli pre 1 TWLN
good:- bon pre 1 FMDXLT
bad:- mauvais pre 1 FMDXL
new:newer nouveau/nouvelle/nouvel pre 3 TWVLUXI
old:older vieux/vieille/vieil pre 3 PATWVLUN
young:younger jeune pre 3 PA
long:longer long/longue pre 2 G
high:higher haut pre 2 H
red rouge post 5 TWVLUF
green vert post 5 TWVLUF
blue bleu post 5 TWVLU
white blanc/blanche post 5 TWVLUA
black noir post 5 TWVUA
grey gris post 5 TWVUA
yellow jaune post 5 TWVUF
round rond post 4 TU
open ouvert post 4 O
closed fermé post 4 O
empty vide post 4 E
full plein post 4 E
broken cassé post 4 B
wet mouillé post 4 WTUA
dry sec/sèche post 4 WU
clean:cleaner propre post 1 TWUVL
dirty:dirtier sale post 1 TWUVLA
heavy:heavier lourd post 1 TV
light:lighter léger post 1 TW
expensive cher post 1 TWVFMDL
rich:richer riche post 1 P
poor:poorer pauvre post 1 P
happy:happier heureux post 1 P
sad:sadder triste post 1 PX
tired fatigué post 1 PA
ill malade post 4 PA
strong:stronger fort post 1 PA
intelligent intelligent post 1 PA
kind:kinder gentil/gentille post 1 P
famous célèbre post 1 PL
brave:braver courageux post 1 PA
lazy:lazier paresseux post 1 PA
nervous nerveux post 1 PA
funny:funnier drôle post 1 PX
strange étrange post 1 PATXL
interesting intéressant post 1 XL
boring ennuyeux post 1 X
difficult difficile post 1 X
easy:easier facile post 1 X
important important post 1 XPI
dangerous dangereux post 1 AXVN
useful utile post 1 TX
hot:hotter chaud post 1 DM
cold:colder froid post 1 DMF
fresh frais/fraîche post 4 FM
soft:softer doux/douce post 1 W
modern moderne post 1 LUVI
French français post 6 PFMDWVLTXI
English anglais post 6 PFMDWVLTXI
German allemand post 6 PFMDWVLTXI
Spanish espagnol post 6 PFMDWVLTXI
Italian italien post 6 PFMDWVLTXI
European européen post 6 PLXI
American américain post 6 PVLXI
African africain post 6 PALXI
Russian russe post 6 PVLXI
international international attr 6 I
national national attr 6 I
wooden en_bois post 7 TU
golden en_or post 7 T
economic économique attr 8 I
political politique attr 8 I
monetary monétaire attr 8 I
central central attr 8 I
common commun attr 8 I
public public/publique attr 8 I
medical médical attr 8 I
scientific scientifique attr 8 I
cultural culturel attr 8 I
financial financier attr 8 I
social social attr 8 I
"""

ADJECTIVES = tuple(_adjective(row) for row in TABLE.strip().splitlines())
BY_ENGLISH = {adjective.en: adjective for adjective in ADJECTIVES}
ORIGINS = tuple(a for a in ADJECTIVES if a.rank == 6)
DOMAINS = tuple(a for a in ADJECTIVES if a.rank == 8)
OPPOSITES = frozenset(
    frozenset(pair.split())
    for pair in ("clean dirty", "heavy light", "rich poor", "happy sad", "hot cold", "good bad", "difficult easy")
) | {frozenset(("interesting", "boring"))}


@cache
def beside(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that can stand beside a noun, ordinals aside."""
    fitting = (a for a in ADJECTIVES if a.fits(noun) and a.place in ("pre", "post", "attr"))
    return tuple(a for a in fitting if not _means_another(a.en, noun))


def _means_another(adjective: str, noun: Noun) -> bool:
    """Whether French would hear something else: `beau-frère` is a brother-in-law, `petit ami` a boyfriend."""
    kin = "K" in noun.kinds and adjective in ("beautiful", "small", "little")
    return kin or (adjective, noun.en) in (("old", "girl"), ("big", "shop"))


@cache
def said_of(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that "the noun is …" can end with."""
    return tuple(a for a in ADJECTIVES if a.fits(noun) and a.place in ("pre", "post", "pred"))


def compatible(one: Adjective, other: Adjective) -> bool:
    """Whether both can be true of one thing: not two colours, not hot and cold."""
    return one.rank != other.rank or (one.rank == 1 and frozenset((one.en, other.en)) not in OPPOSITES)
