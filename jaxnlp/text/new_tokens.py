"""Adds tokens to a pretrained tokenizer, as Transformers does."""

import json
from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer

from jaxnlp.text.tokenizer_files import tokenizer_of


def with_added_tokens(tokenizer: Tokenizer, tokens: Sequence[str]) -> Tokenizer:
    """A copy of a tokenizer in which each of these texts is one token, also inside a longer word.

    Their ids follow those of all other tokens, in this order.

    Raises: ValueError for an existing token, and for a text that the tokenizer does not read as one token.

    Source: `add_tokens` of Transformers' tokenizers.
    """
    known = [token for token in tokens if tokenizer.token_to_id(token) is not None]
    if known:
        raise ValueError(f"the tokenizer has these tokens already: {', '.join(map(repr, known))}; leave them out")
    more = tokenizer_of(json.loads(tokenizer.to_str()))
    more.add_tokens([AddedToken(token) for token in tokens])
    for token in tokens:
        token_id = more.token_to_id(token)
        if token_id is None or token_id not in more.encode(token, add_special_tokens=False).ids:
            raise ValueError(
                f"the tokenizer does not read {token!r} as one token, since it first changes texts, for example to "
                "lower case, and then another token is the same; leave it out"
            )
    return more
