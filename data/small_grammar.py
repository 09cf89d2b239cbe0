"""English-like sentences of a small grammar, with tags, named entities and dependency trees.

Each sentence is sampled from a grammar of a few hundred words. Taggers and parsers need context for these phenomena:

  agreement    the dog that chases the cats sleeps; the dogs that chase the cat sleep
  attachment   sees the bird with a telescope (the verb's), sees the bird with long feathers (the noun's)
  tags         plans, walks, watches and others are nouns or verbs
  entities     Jordan, Lincoln and Paris are persons or places; Ford and Morgan are persons or organisations

Tags are Universal POS tags, relations are those of Universal Dependencies, and labels are BIO with the types PER, LOC
and ORG. Trees are projective, and have one root.
"""

import dataclasses
import random
from collections.abc import Sequence
from typing import NamedTuple

from data import DataError


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _pairs(text: str) -> dict[str, str]:
    words = _words(text)
    return dict(zip(words[::2], words[1::2], strict=True))


PERSONS = ("Anna", "Carl", "David", "Elena", "Jordan", "Lincoln", "Maria", "Omar", "Paris", "Peter", "Sofia", "Tom")
SURNAMES = ("Becker", "Diaz", "Ford", "Jones", "Kim", "Lopez", "Morgan", "Novak", "Okoye", "Rossi", "Smith", "Tanaka")
PLACES = ("Berlin", "Cairo", "Jordan", "Lima", "Lincoln", "Norway", "Oslo", "Paris", "Peru", "Rome", "Texas", "Tokyo")
TWO_WORD_PLACES = (("New", "York"), ("San", "Diego"), ("Hong", "Kong"), ("Costa", "Rica"))
FIRMS = ("Acme", "Delta", "Ford", "Globex", "Morgan", "Orion", "Vertex", "Zenith")
FIRM_ENDINGS = ("Bank", "Airlines", "Motors", "Records", "Systems")
ANIMATE = _words(
    "artist baker bird boy cat child doctor dog farmer girl horse judge lawyer man minister nurse pilot poet scientist "
    "singer student teacher tourist woman"
)
THINGS = _words(
    "apple book bridge car castle door garden house letter map mountain newspaper painting picture plan report river "
    "road ship song story table train tree watch window walk"
)
INSTRUMENTS = _words("binoculars camera glass microscope mirror telescope")
ATTRIBUTES = _words("beard collar eye feather hat scar smile tail")
PLACES_COMMON = _words("city forest garden kitchen library market museum park school station street village")
IRREGULAR = _pairs("child children man men woman women binoculars binoculars boy boys")
PERCEIVE = _words("find notice see spot watch")
TRANSITIVE = _words("admire chase describe draw follow help like paint plan remember visit")
INTRANSITIVE = _words("arrive dance laugh run sing sleep smile wait walk work")
THINK = _words("believe claim hope know say think")
WANT = _words("decide hope plan try want")
GIVE = _words("bring give send show")
PAST = _pairs(
    "find found see saw draw drew run ran sing sang sleep slept know knew say said think thought bring brought give "
    "gave send sent show showed plan planned spot spotted"
)
PARTICIPLE = _pairs("see seen draw drawn run run sing sung know known give given show shown")
ADJECTIVES = _words(
    "black bright clever famous happy heavy large long old quiet red sad small strange tall white young"
)
STATES = _words("angry famous happy hungry late proud quiet ready sad tired")
ADVERBS = _words("always never often rarely sometimes usually")
MANNER = _words("carefully happily loudly quickly quietly slowly")
NUMBERS = _words("two three four five six seven")
MODALS = _words("can may must should will")
PRONOUNS = (("he", "him", False), ("she", "her", False), ("they", "them", True), ("we", "us", True))
POSSESSIVES = _words("her his my our their")
SUBORDINATORS = _words("after although because before when while")
JOBS = _words("baker doctor farmer judge lawyer minister nurse pilot poet scientist singer teacher")
_TRIES = 50
"""Maximum number of samples for each requested sentence, since samples may be equal."""


class GrammarSentence(NamedTuple):
    """A sentence of n words.

    Attributes:
      words: the words [n].
      tags: Universal POS tags [n].
      labels: BIO labels [n]: O, B-PER, I-PER, and so on.
      heads: the position of each word's head, from 1; 0 for the root [n].
      relations: relation of each word to its head [n].
    """

    words: tuple[str, ...]
    tags: tuple[str, ...]
    labels: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


def grammar_sentences(count: int, *, seed: int, without: Sequence[GrammarSentence] = ()) -> list[GrammarSentence]:
    """Distinct sentences, in the order of sampling.

    Args:
      count: number of sentences.
      seed: of the sampling.
      without: sentences to exclude, such as another split's.

    Raises: DataError when the grammar does not have so many sentences.
    """
    grammar, excluded = _Grammar(random.Random(seed)), {sentence.words for sentence in without}
    sentences: dict[tuple[str, ...], GrammarSentence] = {}
    for _ in range(_TRIES * count):
        if len(sentences) == count:
            break
        sentence = grammar.sentence()
        if sentence.words not in excluded:
            sentences.setdefault(sentence.words, sentence)
    if len(sentences) < count:
        raise DataError(f"the small grammar gave {len(sentences)} different sentences of {count}; ask for fewer")
    return list(sentences.values())


@dataclasses.dataclass
class _Node:
    """A word and its dependents to the left and to the right, in the order of the sentence."""

    word: str
    tag: str
    relation: str = "root"
    left: list["_Node"] = dataclasses.field(default_factory=list)
    right: list["_Node"] = dataclasses.field(default_factory=list)
    label: str = "O"

    def having(self, relation: str) -> "_Node":
        self.relation = relation
        return self


def _written(root: _Node) -> GrammarSentence:
    """The sentence of a tree: nodes in the order of the words."""
    order: list[_Node] = []
    parents: dict[int, _Node] = {}

    def visit(node: _Node) -> None:
        for child in node.left:
            parents[id(child)] = node
            visit(child)
        order.append(node)
        for child in node.right:
            parents[id(child)] = node
            visit(child)

    visit(root)
    positions = {id(node): index for index, node in enumerate(order, 1)}
    words = [node.word for node in order]
    for index, following in enumerate(words[1:]):
        if words[index] == "a" and following[0] in "aeiou":
            words[index] = "an"
    words[0] = words[0][0].upper() + words[0][1:]
    return GrammarSentence(
        tuple(words),
        tuple(node.tag for node in order),
        tuple(node.label for node in order),
        tuple(positions[id(parents[id(node)])] if id(node) in parents else 0 for node in order),
        tuple(node.relation for node in order),
    )


def plural_of(noun: str) -> str:
    """The plural of a noun."""
    if noun in IRREGULAR:
        return IRREGULAR[noun]
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "ch", "sh")) else f"{noun}s"


def third_person(verb: str) -> str:
    """The form of a verb after he, she or it, with the endings of plural nouns."""
    return plural_of(verb)


def past_of(verb: str) -> str:
    """The past tense of a verb."""
    if verb in PAST:
        return PAST[verb]
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return f"{verb[:-1]}ied"
    return f"{verb}d" if verb.endswith("e") else f"{verb}ed"


class _Grammar:
    """Samples sentences. A noun phrase is a pair: its node and whether it is plural."""

    def __init__(self, generator: random.Random):
        self._random = generator

    def sentence(self) -> GrammarSentence:
        """A sentence with its full stop or question mark."""
        clause = self._question() if self._chance(0.12) else self._statement()
        mark = "?" if clause.left and clause.left[0].word in ("do", "does", "did") else "."
        clause.right.append(_Node(mark, "PUNCT", "punct"))
        return _written(clause)

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def _one(self, of: Sequence[str]) -> str:
        return of[int(self._random.random() * len(of))]

    # Clauses: a clause's node is its predicate.

    def _statement(self) -> _Node:
        clause = self._clause(depth=0)
        if self._chance(0.12):
            other = self._clause(depth=1).having("conj")
            other.left.insert(0, _Node(self._one(("and", "but")), "CCONJ", "cc"))
            other.left.insert(0, _Node(",", "PUNCT", "punct"))
            clause.right.append(other)
        elif self._chance(0.12):
            other = self._clause(depth=1).having("advcl")
            other.left.insert(0, _Node(self._one(SUBORDINATORS), "SCONJ", "mark"))
            if self._chance(0.5):
                clause.left[:0] = [other, _Node(",", "PUNCT", "punct")]
            else:
                clause.right.append(other)
        return clause

    def _question(self) -> _Node:
        subject, plural = self._subject(depth=0)
        verb = self._verb_phrase(plural, depth=0, form="base")
        auxiliary = "did" if self._chance(0.4) else "do" if plural else "does"
        verb.left[:0] = [_Node(auxiliary, "AUX", "aux"), subject.having("nsubj")]
        return verb

    def _clause(self, depth: int) -> _Node:
        if self._chance(0.15):
            return self._copula(depth)
        if self._chance(0.1):
            return self._passive(depth)
        if self._chance(0.12):
            return self._news()
        subject, plural = self._subject(depth)
        verb = self._finite(plural, depth)
        verb.left.insert(0, subject.having("nsubj"))
        return verb

    def _copula(self, depth: int) -> _Node:
        subject, plural = self._subject(depth)
        verb = _Node("were" if plural else "was", "AUX", "cop")
        if self._chance(0.5):
            verb = _Node("are" if plural else "is", "AUX", "cop")
        if not plural and self._chance(0.4):
            job = self._one(JOBS)
            predicate = _Node(job, "NOUN", left=[_Node("a", "DET", "det")])
            if self._chance(0.4):
                predicate.right.append(self._phrase_of_place("nmod"))
        else:
            predicate = _Node(self._one(STATES), "ADJ")
            if self._chance(0.3):
                predicate.left.append(_Node("very", "ADV", "advmod"))
        predicate.left[:0] = [subject.having("nsubj"), verb]
        return predicate

    def _passive(self, depth: int) -> _Node:
        subject, plural = self._common(THINGS, depth)
        verb = self._one(TRANSITIVE)
        node = _Node(PARTICIPLE.get(verb, past_of(verb)), "VERB")
        node.left = [subject.having("nsubj:pass"), _Node("were" if plural else "was", "AUX", "aux:pass")]
        if self._chance(0.6):
            node.right.append(self._with_case("by", self._person_or_noun(depth)[0], "obl:agent"))
        if self._chance(0.3):
            node.right.append(self._phrase_of_place("obl"))
        return node

    def _news(self) -> _Node:
        """A clause about an organisation."""
        verb = self._one(("announced", "bought", "opened", "sold"))
        thing = self._firm() if verb in ("bought", "sold") and self._chance(0.6) else self._common(THINGS, depth=2)[0]
        node = _Node(verb, "VERB", left=[self._firm().having("nsubj")], right=[thing.having("obj")])
        if self._chance(0.6):
            node.right.append(self._phrase_of_place("obl"))
        return node

    # Verbs and their complements.

    def _finite(self, plural: bool, depth: int) -> _Node:
        kind = self._random.random()
        if kind < 0.35:
            return self._verb_phrase(plural, depth, form="present")
        if kind < 0.7:
            return self._verb_phrase(plural, depth, form="past")
        if kind < 0.85:
            verb = self._verb_phrase(plural, depth, form="base")
            verb.left.insert(0, _Node(self._one(MODALS), "AUX", "aux"))
            return verb
        verb = self._verb_phrase(plural, depth, form="participle")
        verb.left.insert(0, _Node("have" if plural else "has", "AUX", "aux"))
        return verb

    def _form(self, verb: str, plural: bool, form: str) -> str:
        if form == "present":
            return verb if plural else third_person(verb)
        if form == "past":
            return past_of(verb)
        return PARTICIPLE.get(verb, past_of(verb)) if form == "participle" else verb

    def _verb_phrase(self, plural: bool, depth: int, *, form: str) -> _Node:
        kind = self._random.random()
        if kind < 0.25:
            node = _Node(self._form(self._one(INTRANSITIVE), plural, form), "VERB")
            if self._chance(0.5):
                node.right.append(_Node(self._one(MANNER), "ADV", "advmod"))
        elif kind < 0.5:
            node = _Node(self._form(self._one(PERCEIVE), plural, form), "VERB")
            node.right.append(self._object(depth))
            if self._chance(0.45):
                node.right.append(self._with_instrument())
        elif kind < 0.72:
            node = _Node(self._form(self._one(TRANSITIVE), plural, form), "VERB")
            node.right.append(self._object(depth))
        elif kind < 0.82:
            node = _Node(self._form(self._one(GIVE), plural, form), "VERB")
            thing, _ = self._common(THINGS, depth + 1)
            if self._chance(0.5):
                node.right += [self._person_or_noun(depth + 1)[0].having("iobj"), thing.having("obj")]
            else:
                receiver = self._with_case("to", self._person_or_noun(depth + 1)[0], "obl")
                node.right += [thing.having("obj"), receiver]
        elif kind < 0.91 and depth < 1:
            node = _Node(self._form(self._one(THINK), plural, form), "VERB")
            clause = self._clause(depth + 1).having("ccomp")
            if self._chance(0.7):
                clause.left.insert(0, _Node("that", "SCONJ", "mark"))
            node.right.append(clause)
            return node
        else:
            node = _Node(self._form(self._one(WANT), plural, form), "VERB")
            verb = self._verb_phrase(plural, depth + 1, form="base").having("xcomp")
            verb.left.insert(0, _Node("to", "PART", "mark"))
            node.right.append(verb)
            return node
        if form in ("present", "past") and self._chance(0.15):
            node.left.append(_Node(self._one(ADVERBS), "ADV", "advmod"))
        if self._chance(0.25):
            node.right.append(self._phrase_of_place("obl"))
        return node

    def _object(self, depth: int) -> _Node:
        if self._chance(0.25):
            return _Node(self._one([form for _, form, _ in PRONOUNS]), "PRON", "obj")
        if self._chance(0.3):
            return self._common(THINGS, depth + 1)[0].having("obj")
        return self._person_or_noun(depth + 1)[0].having("obj")

    def _with_instrument(self) -> _Node:
        noun = self._one(INSTRUMENTS)
        determiner = [] if noun == "binoculars" else [_Node(self._one(("a", "the")), "DET", "det")]
        return self._with_case("with", _Node(noun, "NOUN", left=determiner), "obl")

    # Noun phrases.

    def _subject(self, depth: int) -> tuple[_Node, bool]:
        if self._chance(0.2):
            word, _, plural = PRONOUNS[int(self._random.random() * len(PRONOUNS))]
            return _Node(word, "PRON"), plural
        return self._person_or_noun(depth)

    def _person_or_noun(self, depth: int) -> tuple[_Node, bool]:
        if self._chance(0.35):
            person = self._person()
            if self._chance(0.2):
                other = self._person().having("conj")
                other.left.insert(0, _Node("and", "CCONJ", "cc"))
                person.right.append(other)
                return person, True
            return person, False
        return self._common(ANIMATE, depth)

    def _common(self, nouns: Sequence[str], depth: int) -> tuple[_Node, bool]:
        noun, plural = self._one(nouns), self._chance(0.4)
        node = _Node(plural_of(noun) if plural else noun, "NOUN")
        kind = self._random.random()
        if kind < 0.2:
            node.left.append(_Node(self._one(POSSESSIVES), "PRON", "nmod:poss"))
        elif plural and kind < 0.4:
            node.left.append(_Node(self._one(NUMBERS), "NUM", "nummod"))
        else:
            determiner = "the" if self._chance(0.6) else self._one(("these", "some") if plural else ("a", "this"))
            node.left.append(_Node(determiner, "DET", "det"))
        if self._chance(0.3):
            node.left.append(_Node(self._one(ADJECTIVES), "ADJ", "amod"))
        if nouns is THINGS and self._chance(0.25):
            owner = self._place() if self._chance(0.4) else self._person()
            node.right.append(self._with_case("of", owner, "nmod"))
        elif nouns is ANIMATE and self._chance(0.2):
            node.right.append(self._attribute())
        if nouns is ANIMATE and depth < 2 and self._chance(0.15):
            node.right.append(self._relative(plural, depth))
        return node, plural

    def _attribute(self) -> _Node:
        noun = self._one(ATTRIBUTES)
        if self._chance(0.5):
            node = _Node(plural_of(noun), "NOUN", left=[_Node(self._one(ADJECTIVES), "ADJ", "amod")])
        else:
            node = _Node(noun, "NOUN", left=[_Node("a", "DET", "det")])
        return self._with_case("with", node, "nmod")

    def _relative(self, plural: bool, depth: int) -> _Node:
        if self._chance(0.6):
            verb = self._finite(plural, depth + 1).having("acl:relcl")
            verb.left.insert(0, _Node(self._one(("that", "who")), "PRON", "nsubj"))
            return verb
        subject, other = self._subject(depth + 2)
        form = "past" if self._chance(0.5) else "present"
        verb = _Node(self._form(self._one(TRANSITIVE), other, form), "VERB", "acl:relcl")
        verb.left = [_Node("that", "PRON", "obj"), subject.having("nsubj")]
        return verb

    def _with_case(self, preposition: str, node: _Node, relation: str) -> _Node:
        node.left.insert(0, _Node(preposition, "ADP", "case"))
        return node.having(relation)

    def _phrase_of_place(self, relation: str) -> _Node:
        if self._chance(0.5):
            return self._with_case("in", self._place(), relation)
        place = _Node(self._one(PLACES_COMMON), "NOUN", left=[_Node("the", "DET", "det")])
        if self._chance(0.3):
            place.right.append(self._with_case("of", self._place(), "nmod"))
        return self._with_case(self._one(("in", "near", "behind")), place, relation)

    # Names.

    def _person(self) -> _Node:
        node = _Node(self._one(PERSONS), "PROPN", label="B-PER")
        if self._chance(0.5):
            node.right.append(_Node(self._one(SURNAMES), "PROPN", "flat", label="I-PER"))
        return node

    def _place(self) -> _Node:
        if self._chance(0.25):
            first, second = TWO_WORD_PLACES[int(self._random.random() * len(TWO_WORD_PLACES))]
            return _Node(second, "PROPN", left=[_Node(first, "PROPN", "compound", label="B-LOC")], label="I-LOC")
        return _Node(self._one(PLACES), "PROPN", label="B-LOC")

    def _firm(self) -> _Node:
        kind = self._random.random()
        if kind < 0.4:
            return _Node(self._one(FIRMS), "PROPN", label="B-ORG")
        if kind < 0.75:
            first = _Node(self._one(FIRMS), "PROPN", "compound", label="B-ORG")
            return _Node(self._one(FIRM_ENDINGS), "PROPN", left=[first], label="I-ORG")
        place = _Node(self._one(PLACES), "PROPN", "nmod", left=[_Node("of", "ADP", "case", label="I-ORG")])
        place.label = "I-ORG"
        return _Node(self._one(("University", "Bank")), "PROPN", right=[place], label="B-ORG")
