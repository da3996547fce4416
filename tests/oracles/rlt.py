"""Random unmarked leaves in phases, in plain Python."""

from tests.oracles.listed import _mix


class Rlt:
    """A tree, its leaves with the unmarked ones first, and who used a block last.

    Served root first (`listed.simulate`). The order of the leaves, from which a hash
    picks, is part of the definition of a seed; all else is the marking rule.
    """

    def __init__(self, capacity, seed=0):
        self.capacity, self.seed, self.victims = capacity, seed, 0
        self.parent, self.unmarked, self.marked = {}, [], []
        self.marks = set()
        self.path = []  # resident blocks of the running request so far

    def __contains__(self, block):
        return block in self.parent

    def begin(self):
        self.path = []

    def access(self, block, parent):
        victim = None
        if block not in self.parent:
            if len(self.parent) >= self.capacity:
                victim = self.evict(block, parent)
                if victim == block:
                    return block
            self.parent[block] = parent
            if parent in self.marked:
                self.marked[self.marked.index(parent)] = block
            else:
                self.marked.append(block)
        elif block not in self.marks and block in self.unmarked:
            self.remove_unmarked(block)
            self.marked.insert(0, block)
        self.marks.add(block)
        self.path.append(block)
        return victim

    def evict(self, block, parent):
        if parent is not None and parent not in self.parent:
            return block  # no room for the parent, none for the child
        if len(self.marks) + 1 >= self.capacity:
            self.new_phase()
        if not self.unmarked:
            return block
        draw = _mix(_mix(self.victims) ^ _mix(~self.seed & 0xFFFFFFFF))
        self.victims += 1
        victim = self.unmarked[draw % len(self.unmarked)]
        self.remove_unmarked(victim)
        if self.marked:  # one array: the last marked leaf fills the place
            self.marked.insert(0, self.marked.pop())
        above = self.parent.pop(victim)
        if above is not None and above not in self.parent.values():
            if above in self.marks:
                self.marked.append(above)
            else:
                self.unmarked.append(above)
                if self.marked:
                    self.marked.append(self.marked.pop(0))
        return victim

    def new_phase(self):
        self.marks = set(self.path)
        self.unmarked, self.marked = self.unmarked + self.marked, []
        for leaf in self.path[-1:]:
            if leaf in self.unmarked:
                self.remove_unmarked(leaf)
                self.marked.insert(0, leaf)

    def remove_unmarked(self, leaf):
        at = self.unmarked.index(leaf)
        self.unmarked[at] = self.unmarked[-1]
        self.unmarked.pop()
