"""Text of others, safe to print: a name in a file can hold codes that a terminal obeys.

>>> printable("\\x1b[2Jcaf\u00e9\\n")
'\\\\x1b[2Jcaf\u00e9\\\\n'
"""

import unicodedata

UNSAFE = ("Cc", "Cs")  # controls, and surrogates, which no terminal can be sent


def printable(text: str, *, keep: str = "") -> str:
    """The text with what is no character escaped, as Python writes it.

    Args:
        text: of anybody.
        keep: characters that stay, such as line breaks.
    """
    return "".join(
        repr(c)[1:-1] if unicodedata.category(c) in UNSAFE and c not in keep else c
        for c in text
    )
