"""Finds an entry of a catalogue by the name that a person types."""

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TypeVar

from perc.errors import InputError

Entry = TypeVar("Entry")
NEAR = 5  # names offered for one that is unknown
CLOSE = 0.5  # similarity of the squeezed names, as difflib measures it


def squeeze(name: str) -> str:
    """A name without what people write differently.

    >>> squeeze("H100_SXM"), squeeze("meta-llama/Llama-3.1-8B")
    ('h100sxm', 'llama318b')
    """
    return re.sub(r"[^a-z0-9]", "", name.rsplit("/", 1)[-1].lower())


def index(entries: Iterable[tuple[str, Entry]]) -> dict[str, Entry]:
    """Entries by squeezed name, each of which must mean one thing.

    Raises:
        ValueError: if two entries answer to one name.
    """
    found: dict[str, Entry] = {}
    for name, entry in entries:
        if found.setdefault(squeeze(name), entry) is not entry:
            raise ValueError(f"two entries answer to {name!r}")
    return found


def look_up(
    name: str, entries: Mapping[str, Entry], names: Iterable[str], *, what: str
) -> Entry:
    """The entry of that name, however it is punctuated.

    Args:
        name: as typed.
        entries: by squeezed name.
        names: proper names, to offer where there is no such entry.
        what: "model", say.

    Raises:
        InputError: for an unknown name; it lists near ones.
    """
    short = squeeze(name)
    if short in entries:
        return entries[short]
    proper = {squeeze(known): known for known in names}
    near = difflib.get_close_matches(short, proper, NEAR, CLOSE)
    offered = [proper[match] for match in near] or sorted(proper.values())
    lead = "Near:" if near else "There are"
    raise InputError(f"no {what} {name!r}. {lead} {', '.join(offered)}.")
