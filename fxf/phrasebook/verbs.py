"""The verbs of the phrasebook, and its pronouns, prepositions and expressions of time."""

from typing import NamedTuple


class Verb(NamedTuple):
    """A verb: its English base form, and its French and Spanish infinitives.

    A link is the preposition before the object, or "". `subjects` and `objects` are the kinds of its nouns. `places`
    is "any", "swum" (in a lake), or "" if no place is named.
    """

    english: str
    english_link: str
    french: str
    french_link: str
    spanish: str
    spanish_link: str
    subjects: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    places: str = ""


class Pronoun(NamedTuple):
    """A subject pronoun. `person` counts I, you, he or she, we, they from 0. Spanish omits a pronoun that is ""."""

    english: str
    french: str
    spanish: str
    person: int
    gender: str = "m"
    plural: bool = False


class Words(NamedTuple):
    """A fixed expression in the three languages."""

    english: str
    french: str
    spanish: str


# English | French | Spanish | kinds of subject | kinds of object | places; links are in brackets.
_INTRANSITIVE = """
sleep  | dormir     | dormir    | person animal  | | any
sing   | chanter    | cantar    | person singer  | | any
dance  | danser     | bailar    | person         | | any
work   | travailler | trabajar  | person         | | any
study  | étudier    | estudiar  | person         | | any
cry    | pleurer    | llorar    | person         | | any
walk   | marcher    | caminar   | person         | | any
run    | courir     | correr    | person runner  | | any
jump   | sauter     | saltar    | person runner  | | any
swim   | nager      | nadar     | person swimmer | | swum
smile  | sourire    | sonreír   | person
travel | voyager    | viajar    | person
cook   | cuisiner   | cocinar   | person
fly    | voler      | volar     | flyer
"""

_TRANSITIVE = """
read   | lire       | leer      | person         | readable
write  | écrire     | escribir  | person         | writable
eat    | manger     | comer     | person         | food
eat    | manger     | comer     | grazer         | fruit crop
buy    | acheter    | comprar   | person         | goods
sell   | vendre     | vender    | person         | goods
choose | choisir    | elegir    | person         | goods
hide   | cacher     | esconder  | person         | portable
wear   | porter     | llevar    | person         | worn
wash   | laver      | lavar     | person         | washable
open   | ouvrir     | abrir     | person         | opening container
close  | fermer     | cerrar    | person         | opening container
break  | casser     | romper    | person         | fragile
repair | réparer    | reparar   | person         | machine instrument
draw   | dessiner   | dibujar   | person         | animal nature vehicle
visit  | visiter    | visitar   | person         | sight
play   | jouer (de) | tocar     | person         | instrument
see    | voir       | ver       | person         | person building goods
find   | trouver    | encontrar | person         | person portable
admire | admirer    | admirar   | person         | person art
help   | aider      | ayudar    | person         | person
greet  | saluer     | saludar   | person         | person
invite | inviter    | invitar   | person         | person
know   | connaître  | conocer   | person         | person
call   | appeler    | llamar    | person         | person
look (for)   | chercher    | buscar       | person     | person portable goal
look (at)    | regarder    | mirar        | person loyal | person art
wait (for)   | attendre    | esperar      | person loyal | person
listen (to)  | écouter     | escuchar     | person loyal | person
talk (to)    | parler (à)  | hablar (con) | person     | person
dance (with) | danser (avec) | bailar (con) | person   | person
"""

_TAKING_MASS = """
eat    | manger     | comer     | person         | foodstuff
drink  | boire      | beber     | person         | drink
buy    | acheter    | comprar   | person         | mass
sell   | vendre     | vender    | person         | mass
want   | vouloir    | querer    | person         | mass
"""

# Verbs with a recipient.
_GIVING = """
give   | donner     | dar       | person         | portable
show   | montrer    | mostrar   | person         | portable art
send   | envoyer    | enviar    | person         | portable
bring  | apporter   | traer     | person         | portable
lend   | prêter     | prestar   | person         | lent vehicle
sell   | vendre     | vender    | person         | goods
"""

_MOVING = """
go (to)     | aller (à)  | ir (a)   | person     | goal
come (from) | venir (de) | venir (de) | person   | goal
"""

_SAYING = """
say    | dire       | decir     | person
think  | penser     | pensar    | person
"""


def _read_verbs(table: str) -> tuple[Verb, ...]:
    verbs = []
    for line in table.strip().splitlines():
        cells = [cell.strip() for cell in line.split("|")] + ["", ""]
        english, french, spanish = (_split_link(cell) for cell in cells[:3])
        subjects, objects = (frozenset(cell.split()) for cell in cells[3:5])
        verbs.append(Verb(*english, *french, *spanish, subjects, objects, cells[5]))
    return tuple(verbs)


def _split_link(cell: str) -> tuple[str, str]:
    """Returns ("talk", "to") for "talk (to)"."""
    word, _, link = cell.partition("(")
    return word.strip(), link.rstrip(")")


INTRANSITIVE = _read_verbs(_INTRANSITIVE)
TRANSITIVE = _read_verbs(_TRANSITIVE)
TAKING_MASS = _read_verbs(_TAKING_MASS)
GIVING = _read_verbs(_GIVING)
MOVING = _read_verbs(_MOVING)
SAYING = _read_verbs(_SAYING)
HAVE = Verb("have", "", "avoir", "", "tener", "", frozenset({"person"}), frozenset({"own", "pet"}))
# Spanish divides "be" between ser and estar: see `Adjective.copula`.
BE = Verb("be", "", "être", "", "estar", "")
THERE_IS = Verb("there is", "", "il y a", "", "hay", "")

# Modals, which come before the infinitive of another verb.
GOING = Verb("be", "going to", "aller", "", "ir", "a")
WANTING = Verb("want", "to", "vouloir", "", "querer", "")
HAVING_TO = Verb("must", "", "devoir", "", "deber", "")

PRONOUNS = (
    Pronoun("I", "je", "", 0),
    Pronoun("you", "tu", "", 1),
    Pronoun("he", "il", "él", 2),
    Pronoun("she", "elle", "ella", 2, gender="f"),
    Pronoun("we", "nous", "", 3, plural=True),
    Pronoun("they", "ils", "ellos", 4, plural=True),
)

IN = Words("in", "dans", "en")
ON = Words("on", "sur", "sobre")
UNDER = Words("under", "sous", "debajo de")
NEAR = Words("near", "près de", "cerca de")
BEHIND = Words("behind", "derrière", "detrás de")
IN_FRONT_OF = Words("in front of", "devant", "delante de")

HABITUAL_TIMES = (
    Words("every day", "tous les jours", "todos los días"),
    Words("every morning", "tous les matins", "todas las mañanas"),
    Words("every week", "toutes les semaines", "todas las semanas"),
    Words("every Sunday", "tous les dimanches", "todos los domingos"),
)
FUTURE_TIMES = (
    Words("today", "aujourd'hui", "hoy"),
    Words("tonight", "ce soir", "esta noche"),
    Words("tomorrow", "demain", "mañana"),
    Words("next week", "la semaine prochaine", "la próxima semana"),
)
