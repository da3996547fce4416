"""First in, first out: the age since insertion, whatever happened since."""

from perc.policies.lru import lru
from perc.types import Policy


def fifo() -> Policy:
    """Evicts what was inserted first; a hit changes nothing.

    score = index of the request that inserted the block

    Cheap, and the worst of the classic rules on conversations: a shared system prompt
    leaves as soon as it is old, and a parent can leave before its children.

    Example:
        >>> fifo().refresh
        False

    References:
        Belady 1966, "A study of replacement algorithms for a virtual-storage computer".
    """
    order = lru()
    return Policy((), order.score, "fifo", uses=order.uses, refresh=False)
