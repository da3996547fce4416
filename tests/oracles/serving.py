"""A server in plain Python: one step of the engine after the other, token by token.

Written to be read beside `perc/serving`, and to share nothing with it but the price of
a step. Blocks are cached in a dict, the queue is a sorted list, answers grow by one
token a step.
"""

from dataclasses import dataclass, field

import numpy as np

from tests.oracles.serving_retention import Shields
from tests.oracles.serving_tiers import Tiers


@dataclass
class Job:
    """A request: what the trace says of it, and what has happened to it."""

    number: int
    blocks: list[int]  # of the prompt
    answer_blocks: list[int]  # that the answer fills, if anybody names them
    ranks: list[int]  # of all of them
    prompt: int
    answer: int
    following: int | None = None  # the turn that its end sets off
    gap_s: float = 0.0
    deadline_s: float = np.inf
    band: float = 0
    place: float = -1  # -1: the number of arrivals before it
    # What has happened.
    key: tuple = ()
    arrived: float = np.nan
    admitted: float = np.nan
    first_token: float = np.nan
    last_token: float = np.nan
    ended: float = np.nan
    status: int = 0
    hit: int = 0
    cached_tokens: int = 0
    known_tokens: int = 0  # of the prompt, that somebody had computed before
    made: int = 0
    preemptions: int = 0
    again: int = 0
    reread: int = 0
    done: int = 0  # tokens computed of this stay
    lost: int = 0  # tokens computed before the preemption
    target: int = 0
    private: int = 0
    decoding: bool = False
    started: bool = False  # some part of its prompt was computed in this stay
    ready: float = 0.0  # when its blocks are loaded
    landing: list[int] = field(default_factory=list)  # blocks that are readable then
    waited: float = 0.0
    loaded: int = 0
    slot: int = 0  # the first that was free
    # Of retention.
    before: int | None = None  # the turn whose end set it off
    tool: int = 0
    turn: int = 1
    reload_s: float = 0.0
    ttl_s: float = 0.0


@dataclass
class Machine:
    """The state of the server."""

    now: float = 0.0
    cached: dict[int, int] = field(default_factory=dict)  # block -> rank
    pins: dict[int, int] = field(default_factory=dict)  # block -> users, 1 or more
    rank: dict[int, int] = field(default_factory=dict)  # of pinned blocks
    ready: dict[int, bool] = field(default_factory=dict)  # of pinned blocks
    future: list[tuple[float, int]] = field(default_factory=list)
    urgent: list[tuple[float, int]] = field(default_factory=list)
    queue: list[Job] = field(default_factory=list)
    running: list[Job] = field(default_factory=list)
    arrivals: int = 0
    evictions: int = 0
    last_s: float = 0.0
    gaps: list[float] = field(default_factory=list)
    steps: int = 0
    busy_s: float = 0.0
    compute_s: float = 0.0
    block_s: float = 0.0  # blocks in use at the start of each step, times its seconds
    in_use: dict[float, list] = field(default_factory=dict)  # after steps, by time
    ever: set[int] = field(default_factory=set)  # blocks that were computed
    batch: int = 0  # requests that a static batch still takes
    computed: int = 0
    below: Tiers | None = None
    shields: Shields | None = None


def serve(
    jobs,
    starts,
    server,
    cost,
    block_tokens,
    *,
    refresh=True,
    until_s=np.inf,
    prices=None,
):
    """Runs a server to the end.

    Args:
        jobs: by number, in the order of the trace.
        starts: (seconds, number) of the arrivals that wait for nobody.
        server: `perc.serving.settings.Server`.
        cost: a roofline.
        block_tokens: tokens of a block.
        refresh: a hit sets the rank again.
        until_s: look at it then.
        prices: of `serving_lines`; None: the lowest rank leaves first.

    Returns:
        The machine; the jobs carry their own results.
    """
    m = Machine(future=sorted(starts))
    s = Simulator(m, jobs, server, cost, block_tokens, refresh, prices)
    m.below, m.shields = s.below, s.shields
    while m.future or m.queue or m.running:
        idle = not m.queue and not m.running
        begins = max(m.now, m.future[0][0]) if idle else m.now
        if begins >= until_s:
            break
        m.now = begins
        s.land()
        s.arrive()
        s.step()
        s.check()
    s.arrive()
    return m


def server_goes_by_program(server):
    return server.order == "program"


class Simulator:
    """The rules."""

    def __init__(self, machine, jobs, server, cost, block_tokens, refresh, prices):
        self.m, self.jobs, self.server, self.cost = machine, jobs, server, cost
        self.block_tokens, self.refresh = block_tokens, refresh
        self.below, self.prices = None, prices
        self.shields = server.retention and Shields(server.retention)
        if server.offload is not None and server.offload.used:
            depths = {
                self.rank_below(r): d for job in jobs for d, r in enumerate(job.ranks)
            }
            self.below = Tiers(server.offload, cost, block_tokens, depths, refresh)

    # Loads.

    def rank_below(self, number):
        """Tiers follow LRU where the GPU's order changes while blocks idle."""
        return self.prices.rows[number][1] if self.prices else number

    def loading(self):
        """Who runs, and has not begun to compute."""
        return [j for j in self.m.running if not j.decoding and not j.started]

    def land(self):
        for job in self.loading():
            if job.ready <= self.m.now:
                for block in job.landing:
                    self.make_ready(block)
                job.landing = []

    def write_through(self, block):
        if self.below is not None and self.server.offload.write == "through":
            self.below.store(block, self.rank_below(self.m.rank[block]), self.m.now)

    def wait(self):
        """Nobody can do anything before the next load or arrival."""
        m = self.m
        coming = [job.ready for job in self.loading() if job.ready > m.now]
        if coming and self.below is not None:
            until = min(min(coming), m.future[0][0] if m.future else np.inf)
            self.below.stall_s += until - m.now
            m.block_s += self.in_use() * (until - m.now)
            m.now = until
            m.in_use.setdefault(m.now, []).append(self.in_use())

    # The queue.

    def arrive(self):
        m = self.m
        while m.future and m.future[0][0] <= m.now:
            time_s, number = m.future.pop(0)
            job = self.jobs[number]
            job.arrived = time_s
            place = m.arrivals if job.place < 0 else job.place
            band = job.band
            if self.shields and server_goes_by_program(self.server):
                lapsed = job.before is not None and not self.shields.holds(job.before)
                band = 1 if lapsed else band
            job.key = (band, place, number)
            m.arrivals += 1
            limit = self.server.max_queue
            full = limit is not None and len(m.queue) >= limit
            if full or self.needs(job) > self.server.capacity_blocks:
                job.status, job.ended = 2, time_s
                if self.shields and job.before is not None:
                    self.shields.came_back(self.jobs[job.before], welcome=False)
                self.follow(job, time_s)
                continue
            if self.shields and job.before is not None:
                self.shields.came_back(self.jobs[job.before], welcome=True)
            m.queue.append(job)
            if self.below is not None and self.server.offload.prefetch:
                ranks = list(map(self.rank_below, job.ranks[: len(job.blocks)]))
                self.below.fetch_ahead(job.blocks, ranks, self.readable, m.now)
            if self.server.order == "deadline" and job.deadline_s < np.inf:
                soon = time_s + job.deadline_s - self.server.promote_within_s
                m.urgent.append((soon, number))
        for soon, number in list(m.urgent):
            if soon <= m.now:
                m.urgent.remove((soon, number))
                job = self.jobs[number]
                job.key = (-1, *job.key[1:])
        m.queue.sort(key=lambda job: job.key)
        if self.shields:
            self.shields.expire(m.now)

    def needs(self, job):
        tokens = job.prompt + job.answer - 1
        return max(-(-tokens // self.block_tokens), len(job.blocks))

    def follow(self, job, time_s):
        if job.following is not None:
            self.m.future.append((time_s + job.gap_s, job.following))
            self.m.future.sort()

    # Blocks.

    def in_use(self):
        return len(self.m.pins) + sum(job.private for job in self.m.running)

    def room(self):
        return self.server.capacity_blocks - self.in_use()

    def evict(self):
        m = self.m
        while len(m.cached) > self.room():
            free = m.cached
            if self.shields:
                free = self.shields.unshielded(m.cached)
            if self.prices:
                victim = self.prices.victim(m.cached, m.pins, m.now, set(free))
            else:
                victim = min(free, key=m.cached.__getitem__)
            rank = m.cached.pop(victim)
            if self.below is not None and self.server.offload.write == "back":
                self.below.store(victim, self.rank_below(rank), m.now)
            m.evictions += 1

    def make_ready(self, block):
        self.m.ready[block] = True
        self.m.ever.add(block)

    def readable(self, block):
        return block in self.m.cached or self.m.ready.get(block, False)

    def pin(self, blocks, ranks):
        m = self.m
        for block, rank in zip(blocks, ranks, strict=True):
            if self.prices:
                self.prices.used[block] = np.float32(m.now)
            if block in m.pins:
                m.pins[block] += 1
                m.rank[block] = rank if self.refresh else m.rank[block]
                continue
            old = m.cached.pop(block, None)
            m.pins[block], m.ready[block] = 1, old is not None
            m.rank[block] = rank if old is None or self.refresh else old

    def unpin(self, blocks):
        m = self.m
        for block in blocks:
            m.pins[block] -= 1
            if m.pins[block] == 0:
                if m.ready[block]:
                    m.cached[block] = m.rank[block]
                del m.pins[block], m.rank[block], m.ready[block]

    def extra(self, job, tokens):
        """Private blocks for a cache of so many tokens."""
        return max(-(-tokens // self.block_tokens) - len(job.blocks), 0)

    def growth(self):
        """Blocks that one token of each decoder needs."""
        decoders = [job for job in self.m.running if job.decoding]
        return sum(
            max(self.extra(job, job.done + 1) - job.private, 0) for job in decoders
        )

    # A step.

    def step(self):
        m, server = self.m, self.server
        preempted = False
        while self.growth() > self.room():
            self.preempt(max(m.running, key=lambda job: job.key))
            preempted = True
        idle = not m.running
        one = server.batching == "low_latency" or (
            server.batching == "adaptive"
            and len(m.queue) <= server.adaptive_queue
            and m.last_s >= server.adaptive_latency_s
        )
        most = 1 if one else server.max_running
        if server.batching == "static":
            if idle and not m.batch:
                m.batch = min(len(m.queue), server.max_running)
            most = m.batch
        if preempted:
            m.batch = most = 0
        decoders = [job for job in m.running if job.decoding]
        budget = server.token_budget - len(decoders)
        chunks = []
        for job in m.running:
            if not job.decoding and job.started and budget > 0:
                chunk = min(budget, job.target - job.done)
                chunks.append((job, chunk))
                budget -= chunk
        stuck = False
        for job in sorted(self.loading(), key=lambda job: job.key):
            if job.ready > m.now or budget <= 0 or self.cut(chunks):
                continue
            need = job.target - job.done
            if not server.chunked and need > budget and chunks:
                stuck = True
                break
            chunk = min(need, budget) if server.chunked else need
            job.started = True
            chunks.append((job, chunk))
            budget -= chunk
        grown = self.growth()
        admitted = 0
        while (
            m.queue
            and budget > 0
            and len(m.running) < server.max_running
            and not self.cut(chunks)
            and most > 0
            and not stuck
        ):
            chunk = self.admit(m.queue[0], budget, grown, first=not chunks)
            if chunk is None:
                break
            job = m.queue.pop(0)
            admitted += 1
            most -= 1
            m.batch -= 1
            if job.started:
                chunks.append((job, chunk))
                budget -= chunk
        self.run(decoders, chunks)
        if not decoders and not chunks and not preempted and not admitted:
            self.wait()

    def cut(self, chunks):
        """Whether some prompt is not done after this step."""
        given = {id(job): chunk for job, chunk in chunks}
        return any(
            job.target - job.done > given.get(id(job), 0)
            for job in self.m.running
            if job.started and not job.decoding
        )

    def admit(self, job, budget, grown, first):
        """The chunk that a request of the queue starts with; None: not now."""
        hit = 0
        while hit < len(job.blocks) and self.readable(job.blocks[hit]):
            hit += 1
        known = 0
        while known < len(job.blocks) and job.blocks[known] in self.m.ever:
            known += 1
        target = job.prompt + job.made
        unpinned = sum(block not in self.m.pins for block in job.blocks)
        private = self.extra(job, target)
        if unpinned + private > self.room() - grown:
            self.m.batch = 0
            return None
        cached = min(hit * self.block_tokens, job.prompt, target - 1)
        loads, wanted, lead, ready = False, [], hit, self.m.now
        if self.below is not None:
            lead, wanted, ready = self.below.find(
                job.blocks, hit, self.readable, self.m.now
            )
            more = min(lead * self.block_tokens, job.prompt, target - 1)
            if more > cached:
                work = float(self.cost.prefill_flops(more, cached))
                how = self.server.offload.load
                recompute_s = work / float(self.cost.flops_per_s)
                quicker = ready - self.m.now < recompute_s
                loads = how == "reload" or (how == "cheapest" and quicker)
            if loads:
                cached = more
        need = target - cached
        if not loads and not self.server.chunked and need > budget and not first:
            return None
        job.started, job.landing, job.ready = not loads, [], self.m.now
        if self.below is not None:
            if not job.preemptions:
                self.below.count(job.blocks)
            many = sum(len(found) for found in wanted)
            if loads:
                below = map(self.rank_below, job.ranks)
                ranks = dict(zip(job.blocks, below, strict=False))
                self.below.bring(wanted, ranks, self.m.now, not job.preemptions)
                job.landing, job.ready = job.blocks[hit:lead], ready
                job.waited += ready - self.m.now
                job.loaded += 0 if job.preemptions else many
            else:
                self.below.declined += many
        if self.prices:
            self.prices.latest = max(self.prices.latest, job.number)
        self.pin(job.blocks, job.ranks[: len(job.blocks)])
        job.private, job.target, job.done = private, target, cached
        taken = {other.slot for other in self.m.running}
        job.slot = min(set(range(len(taken) + 1)) - taken)
        self.m.running.append(job)
        if self.shields and job.before is not None and not job.preemptions:
            self.shields.admitted(job.before, self.m.now - job.arrived)
        self.evict()
        if job.preemptions:
            job.reread += hit
            job.again += max(job.lost - cached, 0)
            job.lost = 0
        else:
            job.hit, job.cached_tokens, job.admitted = hit, cached, self.m.now
            job.known_tokens = min(known * self.block_tokens, job.prompt, target - 1)
        return min(need, budget) if self.server.chunked else need

    def preempt(self, job):
        m = self.m
        m.running.remove(job)
        self.unpin(job.blocks)
        if job.decoding:
            job.last_token = m.now
        job.lost, job.private, job.decoding = job.lost + job.done, 0, False
        job.started = False
        job.preemptions += 1
        m.queue.append(job)
        m.queue.sort(key=lambda job: job.key)

    def run(self, decoders, chunks):
        m, cost = self.m, self.cost
        flops = sum(float(cost.decode_flops(job.done + 1)) for job in decoders)
        read = sum(float(cost.kv_bytes(job.done + 1)) for job in decoders)
        tokens = len(decoders)
        for job, chunk in chunks:
            flops += float(cost.prefill_flops(job.done + chunk, job.done))
            read += float(cost.kv_bytes(job.done + chunk))
            tokens += chunk
        if tokens:
            m.last_s = float(cost.step_s(flops, read, tokens))
            m.block_s += self.in_use() * m.last_s
            m.now += m.last_s
            m.busy_s += m.last_s
            m.compute_s += flops / float(cost.flops_per_s)
            m.steps += 1
        for job in decoders:
            job.done += 1
            job.made += 1
            job.private = max(job.private, self.extra(job, job.done))
            m.gaps.append(m.last_s)
        self.evict()
        for job, chunk in chunks:
            self.finish_chunk(job, chunk)
        done = [job for job in m.running if job.made >= job.answer]
        for job in sorted(done, key=lambda job: job.slot):
            self.finish(job)
        m.in_use.setdefault(m.now, []).append(self.in_use())

    def finish_chunk(self, job, chunk):
        m = self.m
        before = job.done // self.block_tokens
        if job.done >= job.prompt:
            before = len(job.blocks)
        job.done += chunk
        m.computed += chunk
        for depth, block in enumerate(job.blocks):
            if (depth + 1) * self.block_tokens <= job.done or job.done >= job.prompt:
                self.make_ready(block)
                if depth >= before:
                    self.write_through(block)
        if job.done == job.target:
            if job.made:
                m.gaps.append(m.now - job.last_token)
            else:
                job.first_token = m.now
            job.made += 1
            job.decoding = True

    def finish(self, job):
        m = self.m
        m.running.remove(job)
        job.private = 0
        self.unpin(job.blocks)
        self.pin(job.answer_blocks, job.ranks[len(job.blocks) :])
        for block in job.answer_blocks:
            self.make_ready(block)
            self.write_through(block)
        self.unpin(job.answer_blocks)
        if self.shields:
            self.shields.turn_ended(job, m.now)
        self.evict()
        job.status, job.ended = 1, m.now
        self.follow(job, m.now)

    def check(self):
        """Blocks are conserved, and nobody is in two places."""
        m = self.m
        if self.below is not None:
            self.below.check()
        assert self.room() - len(m.cached) >= 0
        assert not set(m.cached) & set(m.pins)
        assert not {id(j) for j in m.queue} & {id(j) for j in m.running}
        for job in m.running:
            assert -(-job.done // self.block_tokens) <= len(job.blocks) + job.private
