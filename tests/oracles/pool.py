"""A block pool in plain Python: two lists of free blocks, in the order of reuse."""


class Pool:
    """Free blocks without a key leave first, then cached ones by (score, age)."""

    def __init__(self, n_blocks, pinned):
        self.refs = [0] * n_blocks
        self.key = [None] * n_blocks
        self.pinned = pinned
        self.keyless = list(range(pinned, n_blocks))
        self.cached = []
        self.evicted = 0

    def _sorted_cached(self, score):
        return sorted(self.cached, key=lambda block: score[block])

    def _drop_keys(self, blocks):
        """Returns the keys of which no copy is left."""
        lost = {self.key[block] for block in blocks} - {None}
        self.evicted += sum(self.key[block] is not None for block in blocks)
        for block in blocks:
            self.key[block] = None
        return lost - set(self.key)

    def allocate(self, n, score):
        given = (self.keyless + self._sorted_cached(score))[:n]
        if len(given) < n:
            return None
        removed = self._drop_keys(given)
        for block in given:
            self.refs[block] = 1
        self._no_longer_free(given)
        return given, removed

    def evict(self, n, score):
        given = self._sorted_cached(score)[:n]
        if len(given) < n:
            return None
        removed = self._drop_keys(given)
        self._no_longer_free(given)
        self.keyless = given + self.keyless
        return given, removed

    def look_up(self, keys):
        found = []
        for key in keys:
            copies = [b for b, known in enumerate(self.key) if known == key]
            if not copies:
                break
            found.append(min(copies, key=lambda b: (self.refs[b] == 0, b)))
        return found

    def hold(self, blocks):
        for block in blocks:
            self.refs[block] += 1
        self._no_longer_free(blocks)

    def name(self, block, key):
        """Returns whether no look-up found the key before."""
        new = key not in self.key
        self.key[block] = key
        return new

    def release(self, blocks):
        freed = []
        for block in reversed(blocks):
            self.refs[block] -= 1
            if not self.refs[block]:
                freed.append(block)
        self.keyless = [b for b in freed if self.key[b] is None] + self.keyless
        self.cached += [b for b in freed if self.key[b] is not None]

    def _no_longer_free(self, blocks):
        self.keyless = [b for b in self.keyless if b not in blocks]
        self.cached = [b for b in self.cached if b not in blocks]
