"""The verbs of the toy translation, English and French, with who does them and to what.

A row of the table is `english | french | subjects | objects | notes`. English is the base and the past, the -ing form
where it doubles a letter, and after a plus the particle that goes with it ("look looked +for"). Subjects and objects are
the kinds of `nouns`; no objects, no object. Notes: `now` only in the present ("he knows"), `state` no -ing form, `all`
an object without article means all of its kind ("he likes cats", `il aime les chats`), `to` something is given to
somebody, `be` the past is made with `être`, `place` it is
done somewhere, `away` nowhere in particular.
"""

from dataclasses import dataclass

CONSONANTS = frozenset("bcdfghjklmnpqrstvwxz")


@dataclass(frozen=True)
class Verb:
    base: str
    past: str
    ing: str
    particle: str
    infinitive: str
    present: tuple[str, ...]  # je il nous vous ils
    participle: str
    subjects: str
    objects: str
    notes: frozenset[str]

    @property
    def third(self) -> str:
        if self.base == "have":
            return "has"
        if self.base.endswith(("ch", "sh", "s", "x", "o")):
            return self.base + "es"
        if self.base.endswith("y") and self.base[-2] in CONSONANTS:
            return self.base.removesuffix("y") + "ies"
        return self.base + "s"


# je il nous vous ils, and the past participle
IRREGULAR = """
être suis est sommes êtes sont été
avoir ai a avons avez ont eu
aller vais va allons allez vont allé
pouvoir peux peut pouvons pouvez peuvent pu
devoir dois doit devons devez doivent dû
vouloir veux veut voulons voulez veulent voulu
acheter achète achète achetons achetez achètent acheté
envoyer envoie envoie envoyons envoyez envoient envoyé
boire bois boit buvons buvez boivent bu
voir vois voit voyons voyez voient vu
prendre prends prend prenons prenez prennent pris
comprendre comprends comprend comprenons comprenez comprennent compris
ouvrir ouvre ouvre ouvrons ouvrez ouvrent ouvert
écrire écris écrit écrivons écrivez écrivent écrit
connaître connais connaît connaissons connaissez connaissent connu
construire construis construit construisons construisez construisent construit
suivre suis suit suivons suivez suivent suivi
dormir dors dort dormons dormez dorment dormi
courir cours court courons courez courent couru
rire ris rit rions riez rient ri
partir pars part partons partez partent parti
venir viens vient venons venez viennent venu
revenir reviens revient revenons revenez reviennent revenu
"""

ENDINGS = {"er": "e e ons ez ent é", "ir": "is it issons issez issent i", "re": "s - ons ez ent u"}

TABLE = """
eat ate | manger | PA | FM |
drink drank | boire | PA | D |
buy bought | acheter | P | TWVFMD |
sell sold | vendre | P | TWVFM |
see saw | voir | PA | PATVLN | state
look looked +at | regarder | PA | PATVN |
find found | trouver | PA | PATW |
lose lost | perdre | P | TW |
take took | prendre | P | TWV |
open opened | ouvrir | P | O |
close closed | fermer | P | O |
break broke | casser | P | B |
wash washed | laver | P | WV |
wear wore | porter | P | W |
carry carried | porter | P | T |
write wrote | écrire | P | R |
understand understood | comprendre | P | PX | state
know knew | connaître | P | PL | now
like liked | aimer | P | AFMDXLP | state all
love loved | aimer | P | AFMDXLP | state all
hate hated | détester | P | AFMDX | state all
visit visited | visiter | P | L |
help helped | aider | P | P |
hear heard | entendre | PA | PA | state
wait waited +for | attendre | P | PV |
look looked +for | chercher | PA | PATW |
forget forgot forgetting | oublier | P | TWJ |
choose chose | choisir | P | TWFJ |
finish finished | finir | P | R |
build built | construire | P | Q |
follow followed | suivre | PA | PAV |
cross crossed | traverser | PA | Y |
leave left | quitter | P | L |
have had | avoir | P | ATWV | now
want wanted | vouloir | P | AFMDTW | now
give gave | donner | P | TWFM | to
show showed | montrer | P | TWN | to
send sent | envoyer | P | TW | to
bring brought | apporter | P | TWFMD | to
sleep slept | dormir | PA | |
work worked | travailler | P | |
swim swam swimming | nager | PA | |
dance danced | danser | P | |
run ran running | courir | PA | |
walk walked | marcher | PA | |
laugh laughed | rire | P | |
cry cried | pleurer | P | |
sing sang | chanter | P | |
play played | jouer | PA | |
live lived | habiter | P | | place
arrive arrived | arriver | PAV | | be away
leave left | partir | PAV | | be away
stay stayed | rester | PA | | be place
fall fell | tomber | PA | | be
come came +back | revenir | PA | | be away
"""


def _conjugated() -> dict[str, tuple[str, ...]]:
    return {row.split()[0]: tuple(row.split()[1:]) for row in IRREGULAR.strip().splitlines()}


_IRREGULAR = _conjugated()


def conjugate(infinitive: str) -> tuple[str, ...]:
    """The five persons of the present and the past participle."""
    if infinitive in _IRREGULAR:
        return _IRREGULAR[infinitive]
    stem, endings = infinitive[:-2], ENDINGS[infinitive[-2:]].replace("-", "").split(" ")
    if infinitive.endswith("ger"):  # the g stays soft before o: mangeons
        endings[2] = "eons"
    return tuple(stem + ending for ending in endings)


def make(row: str) -> Verb:
    english, infinitive, subjects, objects, notes = (cell.strip() for cell in row.split("|"))
    words, _, particle = english.partition(" +")
    base, past, *rest = words.split()
    ing = rest[0] if rest else base.removesuffix("e") + "ing"
    *present, participle = conjugate(infinitive)
    return Verb(
        base, past, ing, particle, infinitive, tuple(present), participle, subjects, objects, frozenset(notes.split())
    )


VERBS = tuple(make(row) for row in TABLE.strip().splitlines())
TRANSITIVE = tuple(v for v in VERBS if v.objects)
INTRANSITIVE = tuple(v for v in VERBS if not v.objects)
GIVING = tuple(v for v in VERBS if "to" in v.notes)


def doing_to(kind: str) -> tuple[Verb, ...]:
    """The verbs with a past that can be done to something of a kind."""
    return tuple(v for v in TRANSITIVE if kind in v.objects and "now" not in v.notes)
