"""Shields of the plain server: a dict from turns to deadlines and blocks.

The formulas are `perc.serving.lifecycle`'s, which are plain Python and have published
values of their own; the compiled loop has neither lists of samples nor sets of blocks.
"""

from perc.serving.lifecycle import Histories


class Shields:
    """What is shielded, and what was learned."""

    def __init__(self, how):
        self.how = how
        self.seen = Histories(how.threshold, how.default_ttl_s)
        self.deadline: dict[int, float] = {}
        self.blocks: dict[int, list[int]] = {}
        self.waiting: set[int] = set()
        self.shields = self.in_time = self.late = 0
        self.expired = self.released = self.refused = 0

    def holds(self, number):
        return number in self.deadline

    def end(self, number):
        del self.deadline[number], self.blocks[number]
        self.waiting.discard(number)

    def turn_ended(self, job, now):
        if job.following is None:
            self.seen.turns.append(job.turn)
            return
        ttl_s, _ = self.seen.decide(job.tool, job.reload_s)
        most_s = self.how.most_s
        job.ttl_s = ttl_s if most_s is None else min(ttl_s, most_s)
        if job.ttl_s > 0:
            self.deadline[job.number] = now + job.ttl_s
            self.blocks[job.number] = job.blocks + job.answer_blocks
            self.shields += 1

    def came_back(self, before, welcome):
        self.seen.gap(before.tool, before.gap_s)
        if not self.holds(before.number):
            return
        if welcome:
            self.waiting.add(before.number)
        else:
            self.refused += 1
            self.end(before.number)

    def admitted(self, before, waited_s):
        if self.holds(before):
            self.in_time += 1
            self.end(before)
        else:
            self.late += 1
            self.seen.waits_s.append(waited_s)

    def expire(self, now):
        for number, due in list(self.deadline.items()):
            if due <= now and number not in self.waiting:
                self.expired += 1
                self.end(number)

    def unshielded(self, cached):
        """Blocks that may leave; breaks shields until there is one."""
        while True:
            held = {block for blocks in self.blocks.values() for block in blocks}
            free = [block for block in cached if block not in held]
            if free:
                return free
            at = min(self.deadline, key=lambda number: (self.deadline[number], number))
            self.released += 1
            self.end(at)
