"""Splitting English text into words by a simple rule, as treebanks do: marks of punctuation are words of their own."""

import re

_WORD = re.compile(
    r"""
    (?:https?://|www\.)\S+                      # addresses
    | [\w.+-]+@[\w-]+(?:\.[\w-]+)+              # of mail
    | (?:[^\W\d_]\.){2,}                        # U.S.
    | (?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|vs)\.(?=\s) # abbreviations
    | \d+(?:[.,:]\d+)*                          # 1,000.5 and 12:30
    | \w+?(?=n['\N{RIGHT SINGLE QUOTATION MARK}]t\b)  # do of don't
    | n['\N{RIGHT SINGLE QUOTATION MARK}]t\b
    | ['\N{RIGHT SINGLE QUOTATION MARK}](?:s|re|ve|ll|d|m)\b
    | \w+
    | \.{2,}
    | \S
    """,
    re.VERBOSE | re.IGNORECASE,
)


def simple_words(text: str) -> list[str]:
    """The words of a text.

    Each mark of punctuation is a word. So are n't in don't, and 's, 're, 've, 'll, 'd and 'm after a word.
    Abbreviations such as U.S. and Dr., numbers such as 1,000.5, and addresses are one word.

    >>> simple_words("Dr. Lee doesn't own Anna's dog, I think.")
    ['Dr.', 'Lee', 'does', "n't", 'own', 'Anna', "'s", 'dog', ',', 'I', 'think', '.']
    """
    return _WORD.findall(text)
