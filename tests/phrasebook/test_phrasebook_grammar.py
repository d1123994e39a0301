import pytest

from fxf import phrasebook
from fxf.phrasebook.adjectives import ADJECTIVES, Adjective
from fxf.phrasebook.grammar import Clause, NounPhrase, Place
from fxf.phrasebook.nouns import NOUNS
from fxf.phrasebook.verbs import (
    BE,
    FUTURE_TIMES,
    GIVING,
    GOING,
    HABITUAL_TIMES,
    HAVE,
    HAVING_TO,
    IN,
    INTRANSITIVE,
    MOVING,
    NEAR,
    PRONOUNS,
    SAYING,
    TAKING_MASS,
    THERE_IS,
    TRANSITIVE,
    UNDER,
    WANTING,
    Pronoun,
    Verb,
)

VERBS = (*INTRANSITIVE, *TRANSITIVE, *TAKING_MASS, *GIVING, *MOVING, *SAYING, HAVE)
NOUN_OF = {noun.english: noun for noun in NOUNS}
ADJECTIVE_OF = {adjective.english: adjective for adjective in ADJECTIVES}
PRONOUN_OF = {pronoun.english: pronoun for pronoun in PRONOUNS}
# The first meaning of "dance" is without a partner; "dance with" is another verb.
VERB_OF = {f"{verb.english} {verb.english_link}".strip(): verb for verb in reversed(VERBS)}


def np(text: str, owner: NounPhrase | None = None) -> NounPhrase:
    """Reads "the old man", "these cat", "two cat" or "some water"."""
    determiner, *described, noun = text.split()
    plural = determiner in ("these", "two")
    determiner = {"these": "this", "some": ""}.get(determiner, determiner)
    return NounPhrase(NOUN_OF[noun], determiner, plural, is_(*described) if described else None, owner)


def is_(adjective: str) -> Adjective:
    return ADJECTIVE_OF[adjective]


def does(verb: str) -> Verb:
    return VERB_OF[verb]


def who(pronoun: str) -> Pronoun:
    return PRONOUN_OF[pronoun]


# What is shown, the sentence, and its English, French and Spanish.
GOLDEN: list[tuple[str, Clause, str, str, str]] = [
    (
        "gender and number of a noun and an adjective; an adjective before the French noun",
        Clause(np("these small hen"), BE, adjective=is_("white")),
        "These small hens are white.",
        "Ces petites poules sont blanches.",
        "Estas gallinas pequeñas son blancas.",
    ),
    (
        "vieil before a mute h",
        Clause(np("the old man"), does("read"), object=np("the newspaper")),
        "The old man reads the newspaper.",
        "Le vieil homme lit le journal.",
        "El hombre viejo lee el periódico.",
    ),
    (
        "cet before a mute h; du; del",
        Clause(np("this man"), does("come from"), object=np("the market")),
        "This man comes from the market.",
        "Cet homme vient du marché.",
        "Este hombre viene del mercado.",
    ),
    (
        "cet before a vowel; estar for a place; del",
        Clause(np("the eagle"), BE, place=Place(UNDER, np("this tree"))),
        "The eagle is under this tree.",
        "L'aigle est sous cet arbre.",
        "El águila está debajo de este árbol.",
    ),
    (
        "bel; el before a stressed a, with a feminine adjective",
        Clause(np("the beautiful eagle"), does("fly"), "negative"),
        "The beautiful eagle does not fly.",
        "Le bel aigle ne vole pas.",
        "El águila hermosa no vuela.",
    ),
    (
        "mon before a feminine noun that begins with a vowel",
        Clause(who("he"), does("close"), object=np("my wardrobe")),
        "He closes my wardrobe.",
        "Il ferme mon armoire.",
        "Él cierra mi armario.",
    ),
    (
        "nouvel before a mute h; au",
        Clause(who("we"), does("go to"), object=np("the new hospital")),
        "We go to the new hospital.",
        "Nous allons au nouvel hôpital.",
        "Vamos al hospital nuevo.",
    ),
    (
        "des from de and les",
        Clause(np("my house"), BE, place=Place(NEAR, np("the museum")._replace(plural=True))),
        "My house is near the museums.",
        "Ma maison est près des musées.",
        "Mi casa está cerca de los museos.",
    ),
    (
        "no elision before an aspirated h",
        Clause(np("the owl"), BE, adjective=is_("old")),
        "The owl is old.",
        "Le hibou est vieux.",
        "El búho es viejo.",
    ),
    (
        "j' before a verb; un before a stressed a",
        Clause(who("I"), HAVE, object=np("a harp")),
        "I have a harp.",
        "J'ai une harpe.",
        "Tengo un arpa.",
    ),
    (
        "jouer de, without elision before an aspirated h",
        Clause(np("the queen"), does("play"), object=np("the harp")),
        "The queen plays the harp.",
        "La reine joue de la harpe.",
        "La reina toca el arpa.",
    ),
    (
        "pas de, elided; no article after no tener",
        Clause(np("the prince"), HAVE, "negative", object=np("a computer")),
        "The prince does not have a computer.",
        "Le prince n'a pas d'ordinateur.",
        "El príncipe no tiene ordenador.",
    ),
    (
        "the partitive, in the affirmative",
        Clause(np("the girl"), does("drink"), object=np("some cold water")),
        "The girl drinks cold water.",
        "La fille boit de l'eau froide.",
        "La niña bebe agua fría.",
    ),
    (
        "the partitive, negated and in the future",
        Clause(who("they"), does("drink"), "negative", GOING, object=np("some water")),
        "They are not going to drink water.",
        "Ils ne vont pas boire d'eau.",
        "Ellos no van a beber agua.",
    ),
    (
        "a definite object keeps its article when negated",
        Clause(who("she"), does("eat"), "negative", object=np("the apple")),
        "She does not eat the apple.",
        "Elle ne mange pas la pomme.",
        "Ella no come la manzana.",
    ),
    (
        "personal a before a person, with al",
        Clause(who("I"), does("look for"), object=np("the king")),
        "I look for the king.",
        "Je cherche le roi.",
        "Busco al rey.",
    ),
    (
        "no personal a before a thing",
        Clause(who("I"), does("look for"), object=np("the station")),
        "I look for the station.",
        "Je cherche la gare.",
        "Busco la estación.",
    ),
    (
        "no personal a after tener",
        Clause(who("we"), HAVE, object=np("two brother")),
        "We have two brothers.",
        "Nous avons deux frères.",
        "Tenemos dos hermanos.",
    ),
    (
        "the preposition of each verb",
        Clause(np("my aunt"), does("talk to"), modal=WANTING, object=np("the actor")),
        "My aunt wants to talk to the actor.",
        "Ma tante veut parler à l'acteur.",
        "Mi tía quiere hablar con el actor.",
    ),
    (
        "le for the one who gets something",
        Clause(
            np("the boy"), does("give"), "negative", HAVING_TO, object=np("the key"), recipient=np("the old waiter")
        ),
        "The boy must not give the key to the old waiter.",
        "Le garçon ne doit pas donner la clé au vieux serveur.",
        "El niño no le debe dar la llave al camarero viejo.",
    ),
    (
        "les for several who get something; aux",
        Clause(who("she"), does("send"), object=np("two letter"), recipient=np("the actor")._replace(plural=True)),
        "She sends two letters to the actors.",
        "Elle envoie deux lettres aux acteurs.",
        "Ella les envía dos cartas a los actores.",
    ),
    (
        "a question, with qu' before a pronoun",
        Clause(who("he"), does("call"), "question", object=np("her uncle")),
        "Does he call her uncle?",
        "Est-ce qu'il appelle son oncle ?",
        "¿Él llama a su tío?",
    ),
    (
        "estar for a state; a feminine pronoun",
        Clause(who("she"), BE, "question", adjective=is_("tired")),
        "Is she tired?",
        "Est-ce qu'elle est fatiguée ?",
        "¿Ella está cansada?",
    ),
    (
        "avoir and tener for hunger; no de after pas",
        Clause(who("I"), BE, "negative", adjective=is_("hungry")),
        "I am not hungry.",
        "Je n'ai pas faim.",
        "No tengo hambre.",
    ),
    (
        "a comparison, with qu' and an",
        Clause(np("the horse"), BE, adjective=is_("fast"), than=np("a elephant")),
        "The horse is faster than an elephant.",
        "Le cheval est plus rapide qu'un éléphant.",
        "El caballo es más rápido que un elefante.",
    ),
    (
        "the owner follows what is owned",
        Clause(np("the bicycle", np("the man")), BE, adjective=is_("expensive")),
        "The man's bicycle is expensive.",
        "Le vélo de l'homme est cher.",
        "La bicicleta del hombre es cara.",
    ),
    (
        "there is not: pas de, ningún",
        Clause(np("a tree"), THERE_IS, "negative", place=Place(IN, np("the garden"))),
        "There is no tree in the garden.",
        "Il n'y a pas d'arbre dans le jardin.",
        "No hay ningún árbol en el jardín.",
    ),
    (
        "is there: qu'il y a",
        Clause(np("a old horse"), THERE_IS, "question", place=Place(IN, np("the garden"))),
        "Is there an old horse in the garden?",
        "Est-ce qu'il y a un vieux cheval dans le jardin ?",
        "¿Hay un caballo viejo en el jardín?",
    ),
    (
        "where, with plural agreement",
        Clause(np("my key")._replace(plural=True), BE, "where"),
        "Where are my keys?",
        "Où sont mes clés ?",
        "¿Dónde están mis llaves?",
    ),
    (
        "a clause inside a clause",
        Clause(who("we"), does("think"), content=Clause(who("she"), does("study"), time=HABITUAL_TIMES[0])),
        "We think that she studies every day.",
        "Nous pensons qu'elle étudie tous les jours.",
        "Pensamos que ella estudia todos los días.",
    ),
    (
        "the near future, and du",
        Clause(who("we"), does("play"), modal=GOING, object=np("the piano"), time=FUTURE_TIMES[2]),
        "We are going to play the piano tomorrow.",
        "Nous allons jouer du piano demain.",
        "Vamos a tocar el piano mañana.",
    ),
    (
        "a French plural in -aux; a personal a before a possessive",
        Clause(np("these horse"), does("wait for"), object=np("my niece")._replace(plural=True)),
        "These horses wait for my nieces.",
        "Ces chevaux attendent mes nièces.",
        "Estos caballos esperan a mis sobrinas.",
    ),
]


@pytest.mark.parametrize(
    ("clause", "english", "french", "spanish"), [row[1:] for row in GOLDEN], ids=[row[0] for row in GOLDEN]
)
def test_the_grammar_writes_what_a_speaker_would(clause: Clause, english: str, french: str, spanish: str) -> None:
    assert phrasebook.english.sentence(clause) == english
    assert phrasebook.french.sentence(clause) == french
    assert phrasebook.spanish.sentence(clause) == spanish
