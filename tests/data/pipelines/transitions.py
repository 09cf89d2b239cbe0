"""What tests of parsers' transitions share."""

from collections.abc import Sequence

from jaxnlp.text.transitions import Configuration, System, kinds_of_transitions


def rebuilt(transitions: Sequence[int], length: int, system: System, num_relations: int) -> list[int]:
    """The heads [n] of the tree that transitions build."""
    configuration, kinds = Configuration(system, length), kinds_of_transitions(num_relations)
    for transition in transitions:
        configuration.apply(kinds[transition])
    assert configuration.finished
    return [max(head, 0) for head in configuration.heads[1:]]
