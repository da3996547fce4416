"""An engine with a prefix cache: requests one at a time, of whole blocks."""

from perc.bridges.live import LiveCache
from perc.bridges.uses import Facts


class Engine:
    """Serves requests, each a chain of block names, from C = `size` blocks."""

    def __init__(self, order, size):
        self.cache = LiveCache(order, size)
        self.cache.blank(range(size))
        self.names = [None] * size  # of cached blocks
        self.where = {}  # cached block by name
        self.victims = []  # names, in the order in which they left
        self.hits = []  # leading cached blocks of each request

    def serve(self, chain, facts=None, now_s=0.0):
        """A request comes, runs and ends."""
        ids = self.start(chain, now_s)
        self.stop(ids, facts or Facts(), now_s)

    def start(self, chain, now_s):
        """Finds what is cached, and takes room for the rest; the blocks, root first."""
        found = []
        for name in chain:
            if name not in self.where:
                break
            found.append(self.where[name])
        self.cache.hit([block for block in found if block in self.cache])
        taken = self.cache.take(len(chain) - len(found), now_s)
        for block in taken:
            if self.names[block] is not None:
                self.victims.append(self.names[block])
                del self.where[self.names[block]]
        for name, block in zip(chain[len(found) :], taken, strict=True):
            self.names[block], self.where[name] = name, block
        self.hits.append(len(found))
        return [*found, *taken]

    def stop(self, ids, facts, now_s):
        """The request gives its blocks back; nobody else uses them."""
        self.cache.finished(facts, ids, [self.names[b] for b in ids], now_s)
        self.cache.freed(ids[::-1], self.names.__getitem__, now_s)
