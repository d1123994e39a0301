"""The adjectives of the phrasebook, in English, French and Spanish."""

from typing import NamedTuple


class Adjective(NamedTuple):
    """An adjective. French and Spanish give its masculine and feminine singular.

    `copula` is the Spanish verb before it: "ser", "estar", or "tener" with a noun instead of an adjective (tener
    hambre, avoir faim). `uses` holds "a" if it is used beside a noun and "p" if it is used after "is".
    """

    english: str
    comparative: str
    french: tuple[str, str]
    before_noun: bool
    spanish: tuple[str, str]
    copula: str
    uses: str
    kinds: frozenset[str]


# english/comparative | French | Spanish | copula | uses | kinds; "*" marks the French adjectives before the noun.
_ADJECTIVES = """
small/smaller     | *petit petite             | pequeño pequeña         | ser   | ap | animal child goods place nature
big/bigger        | *grand grande             | grande grande           | ser   | ap | beast large place
old               | *vieux vieille            | viejo vieja             | ser   | ap | adult pet wild lasting aged
young/younger     | *jeune jeune              | joven joven             | ser   | ap | adult beast
new               | *nouveau nouvelle         | nuevo nueva             | ser   | a  | lasting
beautiful/more    | *beau belle               | hermoso hermosa         | ser   | ap | fine
pretty/prettier   | *joli jolie               | bonito bonita           | ser   | ap | clothes nature furniture home
black             | noir noire                | negro negra             | ser   | ap | fur coloured
white             | blanc blanche             | blanco blanca           | ser   | ap | fur coloured
grey              | gris grise                | gris gris               | ser   | ap | fur coloured
red               | rouge rouge               | rojo roja               | ser   | ap | coloured
green             | vert verte                | verde verde             | ser   | ap | coloured
blue              | bleu bleue                | azul azul               | ser   | ap | coloured
yellow            | jaune jaune               | amarillo amarilla       | ser   | ap | coloured
expensive/more    | cher chère                | caro cara               | ser   | ap | goods
heavy/heavier     | lourd lourde              | pesado pesada           | ser   | ap | heavy
fast/faster       | rapide rapide             | rápido rápida           | ser   | ap | fast
modern/more       | moderne moderne           | moderno moderna         | ser   | ap | machine furniture building
interesting/more  | intéressant intéressante  | interesante interesante | ser   | ap | readable art sight
famous/more       | célèbre célèbre           | famoso famosa           | ser   | ap | adult kin readable art sight
rich/richer       | riche riche               | rico rica               | ser   | ap | adult kin
strong/stronger   | fort forte                | fuerte fuerte           | ser   | p  | person beast
elegant/more      | élégant élégante          | elegante elegante       | ser   | ap | adult kin clothes
intelligent/more  | intelligent intelligente  | inteligente inteligente | ser   | ap | person clever
lazy/lazier       | paresseux paresseuse      | perezoso perezosa       | ser   | ap | person pet
dangerous/more    | dangereux dangereuse      | peligroso peligrosa     | ser   | ap | wild
dirty             | sale sale                 | sucio sucia             | estar | ap | washable
broken            | cassé cassée              | roto rota               | estar | ap | fragile
empty             | vide vide                 | vacío vacía             | estar | ap | vessel
ripe              | mûr mûre                  | maduro madura           | estar | ap | fruit
closed            | fermé fermée              | cerrado cerrada         | estar | p  | opening public
hot               | chaud chaude              | caliente caliente       | estar | ap | liquid
cold              | froid froide              | frío fría               | estar | ap | liquid
tired             | fatigué fatiguée          | cansado cansada         | estar | p  | person pet beast
happy             | content contente          | contento contenta       | estar | p  | person pet
sad               | triste triste             | triste triste           | estar | p  | person pet
ill               | malade malade             | enfermo enferma         | estar | p  | person pet beast
busy              | occupé occupée            | ocupado ocupada         | estar | p  | person
ready             | prêt prête                | listo lista             | estar | p  | person
hungry            | faim faim                 | hambre hambre           | tener | p  | person animal
thirsty           | soif soif                 | sed sed                 | tener | p  | person animal
sleepy            | sommeil sommeil           | sueño sueño             | tener | p  | person pet
afraid            | peur peur                 | miedo miedo             | tener | p  | person animal
right             | raison raison             | razón razón             | tener | p  | person
"""

# Adjectives that cannot describe the same thing: there is no old young king, and no red car is blue.
RIVALS = (
    frozenset({"small", "big"}),
    frozenset({"old", "young", "new", "modern"}),
    frozenset({"beautiful", "pretty"}),
    frozenset({"black", "white", "grey", "red", "green", "blue", "yellow"}),
    frozenset({"strong", "ill"}),
    frozenset({"hot", "cold"}),
)


def _read_adjectives(table: str) -> tuple[Adjective, ...]:
    adjectives = []
    for line in table.strip().splitlines():
        english, french, spanish, copula, uses, kinds = (cell.strip() for cell in line.split("|"))
        english, _, comparative = english.partition("/")
        if comparative == "more":
            comparative = f"more {english}"
        french_masculine, french_feminine = french.lstrip("*").split()
        spanish_masculine, spanish_feminine = spanish.split()
        adjectives.append(
            Adjective(
                english,
                comparative,
                (french_masculine, french_feminine),
                french.startswith("*"),
                (spanish_masculine, spanish_feminine),
                copula,
                uses,
                frozenset(kinds.split()),
            )
        )
    return tuple(adjectives)


ADJECTIVES = _read_adjectives(_ADJECTIVES)
