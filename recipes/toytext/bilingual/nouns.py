"""The nouns, names and countries of the toy translation, with what the grammar has to know of each.

A row of the table is `english french gender kinds`; an irregular plural follows a slash, and an underscore stands for a
space. The kinds say where a noun makes sense:

    P person   K relation of somebody   A animal   F countable food   M food not counted   D drink   T thing
    W clothes  V vehicle   L place      U furniture or part of a house   N nature   X thought   I institution
    G can be long   H can be high   O can be open   E can be empty   B can break   R is written   J is learned
    Q is built   Y is crossed   Z one is in it   S one is on it   C one goes there
"""

from dataclasses import dataclass
from functools import cache

from toytext.bilingual import french

NOT_COUNTED = frozenset("MD")


@dataclass(frozen=True)
class Noun:
    en: str
    en_plural: str
    fr: str
    fr_plural: str
    gender: str
    kinds: frozenset[str]

    @property
    def counted(self) -> bool:
        return not self.kinds & NOT_COUNTED


@dataclass(frozen=True)
class Name:
    en: str
    gender: str


@dataclass(frozen=True)
class Country:
    """`fr` is without its article; plural countries carry theirs in English too."""

    en: str
    fr: str
    gender: str
    plural: bool = False

    @property
    def article(self) -> str:
        return "les" if self.plural else "la" if self.gender == "f" else "le"

    @property
    def inside(self) -> str:
        """`en France`, `au Japon`, `aux Pays-Bas`: both "in" and "to"."""
        return f"en {self.fr}" if self._bare else f"à {self.article} {self.fr}"

    @property
    def outside(self) -> str:
        """`de France`, `du Japon`, `des Pays-Bas`: "from"."""
        return f"de {self.fr}" if self._bare else f"de {self.article} {self.fr}"

    @property
    def _bare(self) -> bool:
        return not self.plural and (self.gender == "f" or french.opens_with_vowel(self.fr))


def english_plural(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    if word.endswith("y") and word[-2] not in "aeou":
        return word.removesuffix("y") + "ies"
    return word + "s"


def _noun(row: str) -> Noun:
    en, fr, gender, kinds = row.split()
    one, _, many = en.partition("/")
    un, _, des = fr.replace("_", " ").partition("/")
    return Noun(one, many or english_plural(one), un, des or french.plural(un), gender, frozenset(kinds))


NAMES = tuple(
    [Name(name, "f") for name in "Anna Emma Alice Marie Julia Sara".split()]
    + [Name(name, "m") for name in "Paul Omar Adam Victor Simon Martin".split()]
)
CITIES = (
    ("Paris", "Paris"),
    ("London", "Londres"),
    ("Lyon", "Lyon"),
    ("Rome", "Rome"),
    ("Geneva", "Genève"),
    ("Brussels", "Bruxelles"),
    ("Athens", "Athènes"),
    ("Moscow", "Moscou"),
)
COUNTRIES = (
    Country("France", "France", "f"),
    Country("Spain", "Espagne", "f"),
    Country("Italy", "Italie", "f"),
    Country("Germany", "Allemagne", "f"),
    Country("England", "Angleterre", "f"),
    Country("China", "Chine", "f"),
    Country("Canada", "Canada", "m"),
    Country("Japan", "Japon", "m"),
    Country("Portugal", "Portugal", "m"),
    Country("the United States", "États-Unis", "m", plural=True),
    Country("the Netherlands", "Pays-Bas", "m", plural=True),
)

TABLE = """
man/men homme m P
woman/women femme f P
boy garçon m P
girl fille f P
child/children enfant m P
baby bébé m P
friend ami m PK
teacher professeur m PK
doctor médecin m PK
nurse infirmière f P
student étudiant m P
neighbour voisin m PK
king roi m P
queen reine f P
princess princesse f P
farmer fermier m P
baker boulanger m P
actor acteur m P
actress actrice f P
writer écrivain m P
lawyer avocat m PK
soldier soldat m P
brother frère m PK
sister sœur f PK
father père m PK
mother mère f PK
son fils m PK
daughter fille f PK
uncle oncle m PK
aunt tante f PK
cousin cousin m PK
husband mari m PK
wife/wives femme f PK
hero/heroes héros m P
engineer ingénieur m P
dog chien m A
cat chat m A
horse cheval m A
cow vache f A
bird oiseau m A
mouse/mice souris f A
rabbit lapin m A
bear ours m A
wolf/wolves loup m A
elephant éléphant m A
bee abeille f A
snake serpent m AG
owl hibou/hiboux m A
animal animal m A
apple pomme f F
orange orange f F
banana banane f F
tomato/tomatoes tomate f F
potato/potatoes pomme_de_terre/pommes_de_terre f F
egg œuf m F
cake gâteau m F
cherry cerise f F
strawberry fraise f F
onion oignon m F
pizza pizza f F
bread pain m M
cheese fromage m M
butter beurre m M
meat viande f M
rice riz m M
soup soupe f M
chocolate chocolat m M
water eau f D
milk lait m D
coffee café m D
tea thé m D
wine vin m D
beer bière f D
book livre m TRX
letter lettre f TRGO
pen stylo m T
key clé f T
watch montre f TB
phone téléphone m TB
computer ordinateur m TB
lamp lampe f TB
glass verre m TEB
cup tasse f TEB
plate assiette f TEB
knife/knives couteau m T
bottle bouteille f TEBO
box boîte f TEO
bag sac m TEO
ball balle f T
painting tableau m T
map carte f T
newspaper journal m T
umbrella parapluie m TO
gift cadeau m T
flower fleur f T
clock horloge f TB
hat chapeau m W
shirt chemise f W
coat manteau m WG
dress robe f WG
shoe chaussure f W
jacket veste f W
scarf/scarves écharpe f WG
car voiture f VB
train train m VG
bus bus m V
bicycle vélo m VB
plane avion m VQ
boat bateau m VQ
house maison f LQZE
school école f LQZC
church église f LQZC
hotel hôtel m LQZOC
hospital hôpital m LQZC
shop magasin m LZOC
market marché m LIC
museum musée m LZOC
theatre théâtre m LZOC
cinema cinéma m LZOC
restaurant restaurant m LZOC
station gare f LZC
airport aéroport m LZC
office bureau m LZOC
bank banque f LZOIC
library bibliothèque f LZOC
castle château m LQZC
bridge pont m LQGYS
garden jardin m LZC
park parc m LZC
street rue f LGYZE
city ville f LYZ
village village m LYZC
farm ferme f LZC
kitchen cuisine f LZC
bedroom chambre f LZE
factory usine f LQZC
beach plage f LSGC
tower tour f LQHZ
table table f US
chair chaise f USB
bed lit m US
door porte f UO
window fenêtre f UOB
wall mur m UHQ
roof toit m US
tree arbre m N
mountain montagne f NH
river rivière f NGY
lake lac m NY
forest forêt f NYZ
island île f N
road route f NGYS
idea idée f X
story histoire f XRGJ
question question f X
answer réponse f XRG
problem problème m X
word mot m XGJR
language langue f XJ
song chanson f XRGJ
film film m XG
lesson leçon f XGJ
name nom m XGJ
game jeu m XJ
law loi f X
area zone f I
union union f I
council conseil m I
agency agence f I
court cour f I
commission commission f I
community communauté f I
policy politique f I
parliament parlement m I
institute institut m I
organisation organisation f I
government gouvernement m I
party parti m I
association association f I
fund fonds m I
treaty traité m I
university université f IC
"""

NOUNS = tuple(_noun(row) for row in TABLE.strip().splitlines())
BY_ENGLISH = {noun.en: noun for noun in NOUNS}


@cache
def of_kind(*kinds: str) -> tuple[Noun, ...]:
    """The nouns that are of any of the kinds."""
    return tuple(noun for noun in NOUNS if noun.kinds.intersection(kinds))
