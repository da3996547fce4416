"""Tiers below the GPU in plain Python, for the server of `tests/oracles/serving.py`.

Every tier is a dict from block to rank, every link two numbers: when its directions
are free.
"""

from dataclasses import dataclass, field

from perc.serving.offload import LowerTier


@dataclass
class Tier:
    """One tier, and what happened in it."""

    spec: LowerTier
    blocks: dict[int, int] = field(default_factory=dict)  # block -> rank
    read_free: float = 0.0
    write_free: float = 0.0
    read_s: float = 0.0
    write_s: float = 0.0
    stored: int = 0
    gone: int = 0
    taken: int = 0
    read: int = 0
    hits: int = 0


class Tiers:
    """All of them."""

    def __init__(self, offload, cost, block_tokens, depths, refresh):
        self.offload, self.cost = offload, cost
        self.block_tokens, self.depths, self.refresh = block_tokens, depths, refresh
        self.tiers = [Tier(spec) for spec in offload.tiers if spec.capacity_blocks]
        self.landed: dict[int, float] = {}
        self.uses: dict[int, int] = {}
        self.seen = [0] * 9
        self.declined, self.stall_s = 0, 0.0

    def where(self, block):
        for t, tier in enumerate(self.tiers):
            if block in tier.blocks:
                return t
        return None

    def carry(self, t, way, after):
        tier = self.tiers[t]
        wire = tier.spec.block_s
        if way == "read" or not tier.spec.duplex:
            done = tier.read_free = max(after, tier.read_free) + wire
        else:
            done = tier.write_free = max(after, tier.write_free) + wire
        if way == "read":
            tier.read_s += wire
        else:
            tier.write_s += wire
        return done + tier.spec.latency_s

    def put(self, t, block, rank, now, there):
        tier = self.tiers[t]
        tier.blocks[block] = rank
        tier.stored += 1
        self.landed[block] = there
        if len(tier.blocks) <= tier.spec.capacity_blocks:
            return
        victim = min(tier.blocks, key=tier.blocks.__getitem__)
        its_rank = tier.blocks.pop(victim)
        tier.gone += 1
        if t + 1 < len(self.tiers):
            there = self.carry(t + 1, "write", max(now, self.landed[victim]))
            self.put(t + 1, victim, its_rank, now, there)

    def store(self, block, rank, now):
        if self.where(block) is not None:
            return
        if self.offload.store == "likely" and not self.pays(block, self.depths[rank]):
            return
        self.put(0, block, rank, now, self.carry(0, "write", now))

    def pays(self, block, depth):
        u = min(max(self.uses.get(block, 0), 1), 7)
        share = min((self.seen[u + 1] + 1) / (self.seen[u] + 2), 1.0)
        first = depth * self.block_tokens
        work = self.cost.prefill_flops(first + self.block_tokens, first)
        spec = self.tiers[0].spec
        move = spec.block_s + spec.latency_s
        return share * (float(work) / float(self.cost.flops_per_s) - move) > move

    def count(self, blocks):
        for block in blocks:
            self.uses[block] = self.uses.get(block, 0) + 1
            self.seen[min(self.uses[block], 8)] += 1

    def take(self, t, block):
        tier = self.tiers[t]
        tier.taken += 1
        del tier.blocks[block]

    def find(self, blocks, hit, readable, now):
        """Leading blocks that are anywhere, those to load, and when they are there."""
        lead = hit
        wanted: list[list[int]] = [[] for _ in self.tiers]
        for block in blocks[hit:]:
            if not readable(block):
                t = self.where(block)
                if t is None:
                    break
                wanted[t].append(block)
            lead += 1
        ready = now
        for tier, found in zip(self.tiers, wanted, strict=True):
            if found:
                begin = max(now, tier.read_free, *(self.landed[b] for b in found))
                end = begin + len(found) * tier.spec.block_s
                ready = max(ready, end + tier.spec.latency_s)
        return lead, wanted, ready

    def bring(self, wanted, ranks, now, first):
        """Books the loads."""
        for t, found in enumerate(wanted):
            tier = self.tiers[t]
            if not found:
                continue
            begin = max(now, tier.read_free, *(self.landed[b] for b in found))
            tier.read_free = begin + len(found) * tier.spec.block_s
            tier.read_s += len(found) * tier.spec.block_s
            tier.read += len(found)
            tier.hits += len(found) if first else 0
            for block in found:
                if self.offload.placement == "exclusive":
                    self.take(t, block)
                elif self.refresh:
                    tier.blocks[block] = ranks[block]

    def fetch_ahead(self, blocks, ranks, readable, now):
        for block, rank in zip(blocks, ranks, strict=True):
            t = self.where(block)
            if not readable(block) and t is None:
                return
            if readable(block) or not t:
                continue
            rank = rank if self.refresh else self.tiers[t].blocks[block]
            after = max(now, self.landed[block])
            self.take(t, block)
            self.tiers[t].read += 1
            self.put(0, block, rank, now, self.carry(t, "read", after))

    def check(self):
        for tier in self.tiers:
            assert len(tier.blocks) <= tier.spec.capacity_blocks
            assert tier.stored == tier.gone + tier.taken + len(tier.blocks)
        held = [block for tier in self.tiers for block in tier.blocks]
        assert len(held) == len(set(held))
