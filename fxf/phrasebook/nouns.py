"""The nouns of the phrasebook, in English, French and Spanish.

The entries are a table with one noun per line. Adjectives and verbs choose nouns by their kinds ("person", "fruit"), so
a tomato may be ripe and a table may not.
"""

from functools import cache
from typing import NamedTuple


class Noun(NamedTuple):
    """A noun in the singular. A gender is "m" or "f"."""

    english: str
    french: str
    french_gender: str
    spanish: str
    spanish_gender: str
    kinds: frozenset[str]


# Lines in brackets give kinds to all nouns after them.
_NOUNS = """
[person adult]
man       | homme m       | hombre m
woman     | femme f       | mujer f
king      | roi m         | rey m
queen     | reine f       | reina f
prince    | prince m      | príncipe m
princess  | princesse f   | princesa f
actor     | acteur m      | actor m
actress   | actrice f     | actriz f
waiter    | serveur m     | camarero m
waitress  | serveuse f    | camarera f
[person child]
boy       | garçon m      | niño m
girl      | fille f       | niña f
[person kin]
father    | père m        | padre m       | single
mother    | mère f        | madre f       | single
brother   | frère m       | hermano m
sister    | sœur f        | hermana f
uncle     | oncle m       | tío m
aunt      | tante f       | tía f
grandfather | grand-père m | abuelo m     | single
grandmother | grand-mère f | abuela f     | single
son       | fils m        | hijo m
daughter  | fille f       | hija f
nephew    | neveu m       | sobrino m
niece     | nièce f       | sobrina f
[animal pet fur fine]
cat       | chat m        | gato m        | runner indoor loyal clever
dog       | chien m       | perro m       | runner indoor swimmer fast beast loyal clever
horse     | cheval m      | caballo m     | runner grazer fast beast loyal clever
rabbit    | lapin m       | conejo m      | runner grazer indoor fast
goat      | chèvre f      | cabra f       | runner grazer
cow       | vache f       | vaca f        | grazer beast
donkey    | âne m         | burro m       | runner grazer beast
bird      | oiseau m      | pájaro m      | flyer singer
hen       | poule f       | gallina f
duck      | canard m      | pato m        | flyer swimmer
turtle    | tortue f      | tortuga f     | grazer swimmer
[animal]
mouse     | souris f      | ratón m       | runner indoor fur
owl       | hibou m       | búho m        | flyer fine
eagle     | aigle m       | águila f      | flyer fast fine
bear      | ours m        | oso m         | runner swimmer grazer wild beast
lion      | lion m        | león m        | runner wild beast
wolf      | loup m        | lobo m        | runner wild beast clever
fox       | renard m      | zorro m       | runner fast clever
elephant  | éléphant m    | elefante m    | grazer wild beast clever
monkey    | singe m       | mono m        | runner grazer clever
bee       | abeille f     | abeja f       | flyer
[goods food portable]
apple     | pomme f       | manzana f     | fruit
pear      | poire f       | pera f        | fruit
orange    | orange f      | naranja f     | fruit
banana    | banane f      | plátano m     | fruit
peach     | pêche f       | melocotón m   | fruit
apricot   | abricot m     | albaricoque m | fruit
tomato    | tomate f      | tomate m      | fruit
strawberry | fraise f     | fresa f       | fruit
carrot    | carotte f     | zanahoria f   | crop
egg       | œuf m         | huevo m
cake      | gâteau m      | pastel m
[mass foodstuff]
bread     | pain m        | pan m
cheese    | fromage m     | queso m
meat      | viande f      | carne f
rice      | riz m         | arroz m
chocolate | chocolat m    | chocolate m
soup      | soupe f       | sopa f        | liquid
[mass drink]
water     | eau f         | agua f        | liquid
milk      | lait m        | leche f       | liquid
coffee    | café m        | café m        | liquid
tea       | thé m         | té m          | liquid
wine      | vin m         | vino m
beer      | bière f       | cerveza f
[readable lasting fine]
book      | livre m       | libro m       | writable goods portable lent
letter    | lettre f      | carta f       | writable portable
novel     | roman m       | novela f      | writable goods portable lent
newspaper | journal m     | periódico m   | goods portable
story     | histoire f    | historia f    | writable
poem      | poème m       | poema m       | writable
[goods lasting portable lent clothes washable coloured fine]
hat       | chapeau m     | sombrero m    | own worn
dress     | robe f        | vestido m
shirt     | chemise f     | camisa f      | worn
coat      | manteau m     | abrigo m      | own heavy worn
skirt     | jupe f        | falda f
scarf     | écharpe f     | bufanda f     | worn
jacket    | veste f       | chaqueta f    | worn
tie       | cravate f     | corbata f     | worn
[goods lasting portable lent]
key       | clé f         | llave f       | own
watch     | montre f      | reloj m       | own machine
phone     | téléphone m   | teléfono m    | own machine coloured
umbrella  | parapluie m   | paraguas m    | own coloured fragile
bag       | sac m         | bolso m       | container vessel coloured heavy
map       | carte f       | mapa m        | large
knife     | couteau m     | cuchillo m    | washable
cup       | tasse f       | taza f        | vessel fragile washable coloured
plate     | assiette f    | plato m       | fragile washable coloured large
bottle    | bouteille f   | botella f     | vessel fragile washable coloured
[goods lasting large heavy fine]
box       | boîte f       | caja f        | container vessel coloured
table     | table f       | mesa f        | furniture support coloured
bed       | lit m         | cama f        | furniture support
chair     | chaise f      | silla f       | furniture support coloured fragile
wardrobe  | armoire f     | armario m     | furniture container
lamp      | lampe f       | lámpara f     | furniture fragile coloured machine
mirror    | miroir m      | espejo m      | furniture fragile
clock     | horloge f     | reloj m       | machine
computer  | ordinateur m  | ordenador m   | machine own
painting  | tableau m     | cuadro m      | art
[goods lasting large vehicle machine own fast coloured fine]
car       | voiture f     | coche m       | washable
bicycle   | vélo m        | bicicleta f
boat      | bateau m      | barco m
[goods lasting instrument fine]
piano     | piano m       | piano m       | own heavy large
guitar    | guitare f     | guitarra f    | own
violin    | violon m      | violín m      | own
harp      | harpe f       | arpa f        | own heavy large
flute     | flûte f       | flauta f      | own
trumpet   | trompette f   | trompeta f    | own
accordion | accordéon m   | acordeón m    | own heavy
[]
flower    | fleur f       | flor f        | nature portable coloured goods fine
tree      | arbre m       | árbol m       | nature landmark shade aged large fine
door      | porte f       | puerta f      | opening coloured lasting large heavy
window    | fenêtre f     | ventana f     | opening fragile lasting large
[place landmark building inside lasting fine]
house     | maison f      | casa f        | home coloured
castle    | château m     | castillo m    | goal sight
church    | église f      | iglesia f     | goal sight
museum    | musée m       | museo m       | goal sight public
theatre   | théâtre m     | teatro m      | goal sight public
library   | bibliothèque f | biblioteca f | goal public
school    | école f       | escuela f     | goal
hotel     | hôtel m       | hotel m       | goal public
hospital  | hôpital m     | hospital m    | goal
restaurant | restaurant m | restaurante m | goal public
bank      | banque f      | banco m       | goal public
shop      | boutique f    | tienda f      | goal public
station   | gare f        | estación f    | goal
[place fine]
garden    | jardin m      | jardín m      | home outdoors single
kitchen   | cuisine f     | cocina f      | home inside single
street    | rue f         | calle f       | outdoors single
forest    | forêt f       | bosque m      | outdoors single
park      | parc m        | parque m      | outdoors goal landmark
village   | village m     | pueblo m      | outdoors goal landmark sight
market    | marché m      | mercado m     | goal landmark single
lake      | lac m         | lago m        | goal landmark swum
river     | rivière f     | río m         | landmark swum
bridge    | pont m        | puente m      | landmark
"""


def _read_nouns(table: str) -> tuple[Noun, ...]:
    nouns = []
    shared: list[str] = []
    for line in table.strip().splitlines():
        if line.startswith("["):
            shared = line.strip("[]").split()
            continue
        english, french, spanish, *kinds = (cell.strip() for cell in line.split("|"))
        french, french_gender = french.split()
        spanish, spanish_gender = spanish.split()
        own = kinds[0].split() if kinds else []
        nouns.append(Noun(english, french, french_gender, spanish, spanish_gender, frozenset(shared + own)))
    return tuple(nouns)


NOUNS = _read_nouns(_NOUNS)


@cache
def nouns(kinds: frozenset[str]) -> tuple[Noun, ...]:
    """Returns the nouns of any of `kinds`, in the order of the table."""
    return tuple(noun for noun in NOUNS if noun.kinds & kinds)
