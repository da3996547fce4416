"""Rules and a base policy laid out for the engine: settings, in one order.

All that the order of victims needs is known before the replay: which priority and
deadline a block has after each of its uses, when they end, and what the base policy
thinks of it. What depends on the cache (pins within the budget, quotas) is left to
`perc.retention.engine`.
"""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from perc.bitset import peek
from perc.cost import DEFAULT_COST, PrefillCost
from perc.features import features
from perc.ranks import LOWEST, ordered_bits, scores_from
from perc.retention.claims import Claims, claims_of
from perc.retention.engine import Columns
from perc.retention.rules import Rules, tenant_of
from perc.shapes import bucket, pad, parents
from perc.types import Policy, Trace

SETTINGS = 256  # room for at least so many: traces of any few share one program


@dataclass(frozen=True)
class Ends:
    """Moments at which a directive ends and its block moves, in order of time."""

    access: np.ndarray  # i64[E], the last use of the block before
    time_s: np.ndarray  # f64[E]
    request: np.ndarray  # i64[E], the first request that sees it
    falls: np.ndarray  # bool[E], to a lower priority


@dataclass(frozen=True)
class Schedule:
    """A trace under rules and a base policy, S = N + E settings."""

    trace: Trace
    rules: Rules
    claims: Claims
    ends: Ends
    tenant: np.ndarray  # i32[R]
    access: np.ndarray  # i64[S], the use that each setting stems from
    time_s: np.ndarray  # f64[S], when it begins
    columns: Columns
    quotas: tuple  # amount of each group, group 1 first


def schedule(
    trace: Trace, rules: Rules, policy: Policy, *, cost: PrefillCost = DEFAULT_COST
) -> Schedule:
    """Computes all settings of a trace, their bands and their ranks."""
    claims = claims_of(trace, rules)
    ends = _ends(trace, claims)
    tenant = tenant_of(trace, rules)
    access = np.concatenate([np.arange(trace.n_accesses), ends.access])
    time_s = np.concatenate([trace.arrival_s[trace.request], ends.time_s])
    rank, block_of_rank = _ranks(trace, policy, ends, cost)
    groups, quotas = _groups(trace, rules, tenant)
    columns = _columns(
        trace, claims, ends, access, time_s, rank, block_of_rank, groups, len(quotas)
    )
    return Schedule(trace, rules, claims, ends, tenant, access, time_s, columns, quotas)


def _ends(trace: Trace, claims: Claims) -> Ends:
    """Every end that a request sees and that comes before the block's next use."""
    arrival = trace.arrival_s[trace.request]
    found = [(claims.deadline_s, False), (claims.floor_until_s, False)]
    above = np.full(trace.n_accesses, -np.inf)
    for until in claims.until_s[::-1]:  # from the highest priority down
        found.append((np.where(until > above, until, -np.inf), True))
        above = np.maximum(above, until)
    next_use = np.append(trace.request, trace.n_requests)[trace.next]
    access, time, falls = [], [], []
    for end, is_fall in found:
        due = np.searchsorted(trace.arrival_s, end)
        seen = (due <= next_use) & (due < trace.n_requests)
        (at,) = np.nonzero((end > arrival) & seen)
        access.append(at)
        time.append(end[at])
        falls.append(np.full(len(at), is_fall))
    access, time, falls = (np.concatenate(part) for part in (access, time, falls))
    order = np.lexsort((~falls, access, -trace.depth[access], time))
    access, time, falls = access[order], time[order], falls[order]
    # A deadline and a priority that end at once are one end.
    first = np.ones(len(access), bool)
    first[1:] = (access[1:] != access[:-1]) | (time[1:] != time[:-1])
    access, time, falls = access[first], time[first], falls[first]
    return Ends(access, time, np.searchsorted(trace.arrival_s, time), falls)


def _bands(claims: Claims, access: np.ndarray, time_s: np.ndarray) -> np.ndarray:
    """Places i32[S] among all (deadline, priority); what is not protected is first."""
    deadline = claims.deadline_s[access]
    deadline = np.where(deadline > time_s, deadline, -np.inf)
    priority = claims.priority_at(access, time_s)
    order = np.lexsort((priority, deadline))
    a, b = order[:-1], order[1:]
    steps = (deadline[a] != deadline[b]) | (priority[a] != priority[b])
    band = np.zeros(len(access), np.int32)
    band[order[1:]] = np.cumsum(steps)
    return band


def _ranks(trace: Trace, policy: Policy, ends: Ends, cost: PrefillCost):
    """Ranks i32[N + E] of uses and falls in the base policy's order, -1 = none.

    Where a priority ends, the block counts as used at that moment: under LRU it enters
    its new class at the most recent end. A policy that ranks by insertion alone
    (`refresh` is False) does not see it.

    Returns:
        The ranks, and the block i32 of each rank.
    """
    access = ends.access[ends.falls] if policy.refresh else ends.access[:0]
    at = slice(None) if policy.refresh else slice(0)
    time = ends.time_s[ends.falls][at]
    due = ends.request[ends.falls][at]
    values = features(trace, policy.uses, cost=cost)
    raw = scores_from(dataclasses.replace(policy, chain=False), trace, values)
    bits = ordered_bits(raw)
    late = _scores_at(policy, values, access, time, due)
    late_bits = ordered_bits(late)
    if policy.chain:
        bits, late_bits = _chain(trace, bits, late_bits, access, due)
    uses = np.arange(trace.n_accesses)
    source = np.concatenate([uses, access])
    order = np.lexsort(
        (
            -trace.depth[source],
            np.concatenate([trace.arrival_s[trace.request], time]),
            np.concatenate([2 * trace.request.astype(np.int64), 2 * due - 1]),
            np.concatenate([bits, late_bits]),
        )
    )
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    rank = np.full(trace.n_accesses + len(ends.access), -1, np.int32)
    rank[: trace.n_accesses] = place[: trace.n_accesses]
    if policy.refresh:
        rank[trace.n_accesses :][ends.falls] = place[trace.n_accesses :]
    return rank, trace.block[source[order]]


def _scores_at(policy: Policy, values, access, time, due) -> np.ndarray:
    """Scores f32 that uses would give if they happened at a later time."""
    if not len(access):
        return np.zeros(0, np.float32)
    late = jax.tree.map(lambda column: column[access], values)
    if late.time_s is not None:
        late = dataclasses.replace(late, time_s=time.astype(np.float32))
    if late.step is not None:
        late = dataclasses.replace(late, step=due.astype(np.int32))
    late = jax.tree.map(lambda column: pad(np.asarray(column), 1), late)
    found = np.asarray(policy.score(policy.params, late), np.float32)
    return np.broadcast_to(found, bucket(len(access)))[: len(access)]


def _chain(trace: Trace, bits, late_bits, access, due):
    """`perc.ranks.chain_worth_bits` with falls among the uses."""
    found, late = _chain_bits(
        *(jnp.asarray(pad(c, 0)) for c in (bits, trace.block, trace.start, trace.stop)),
        jnp.asarray(pad(late_bits, 0)),
        jnp.asarray(pad(trace.block[access], 0)),
        jnp.asarray(np.searchsorted(due, np.arange(bucket(trace.n_requests) + 1))),
        jnp.asarray(parents(trace)),
    )
    return np.asarray(found)[: len(bits)], np.asarray(late)[: len(late_bits)]


@jax.jit
def _chain_bits(bits, block, start, stop, late_bits, late_block, due, parent):
    def serve(r, carry):
        def fall(k, carry):
            worth, late = carry
            here = late_block[k]
            now = jnp.maximum(peek(worth, here), late_bits[k])
            worth = worth.at[here].set(now)
            above = jnp.maximum(peek(worth, parent[here]), now)
            return worth.at[parent[here]].set(above), late.at[k].set(now)

        def climb(j, carry):
            worth, out, most = carry
            i = stop[r] - 1 - j
            most = jnp.maximum(most, bits[i])
            now = jnp.maximum(peek(worth, block[i]), most)
            return worth.at[block[i]].set(now), out.at[i].set(now), now

        worth, out, late = carry
        worth, late = lax.fori_loop(due[r], due[r + 1], fall, (worth, late))
        n = stop[r] - start[r]
        begin = (worth, out, jnp.int32(LOWEST))
        worth, out, _ = lax.fori_loop(0, n, climb, begin)
        return worth, out, late

    worth = jnp.full(parent.shape[0] + 1, LOWEST, jnp.int32)
    carry = (worth, jnp.zeros_like(bits), jnp.zeros_like(late_bits))
    return lax.fori_loop(0, start.shape[0], serve, carry)[1:]


def _groups(trace: Trace, rules: Rules, tenant: np.ndarray):
    """Whose quota each access's block counts against, i32[N], and the quotas.

    A block counts against its tenant's quota as long as no other request than that
    tenant's has used it. One that several use counts against none: otherwise a shared
    prefix could leave before what other tenants built on it.
    """
    quotas = [one.quota for one in rules.tenants if one.quota is not None]
    group_of = np.zeros(len(rules.tenants) + 1, np.int32)
    numbers = [i for i, one in enumerate(rules.tenants, 1) if one.quota is not None]
    group_of[numbers] = np.arange(1, len(numbers) + 1)
    user = tenant[trace.request]
    owner = np.zeros(trace.n_blocks, np.int32)
    owner[trace.block[::-1]] = user[::-1]
    by_block = np.argsort(trace.block, kind="stable")
    strange = (user != owner[trace.block])[by_block].astype(np.int64)
    first = np.searchsorted(trace.block[by_block], trace.block[by_block])
    so_far = np.cumsum(strange)
    shared = np.empty(trace.n_accesses, bool)
    shared[by_block] = so_far > (so_far - strange)[first]
    group = np.where(shared, 0, group_of[owner[trace.block]])
    return (group.astype(np.int32), group_of[owner], group_of[tenant]), tuple(quotas)


def _columns(
    trace, claims, ends, access, time_s, rank, block_of_rank, groups, n_groups
):
    group, home, payer = groups
    node, base, rows = _trees(trace.n_blocks, home, n_groups)
    due = np.searchsorted(ends.request, np.arange(bucket(trace.n_requests) + 1))
    common = np.zeros(trace.n_requests, np.int32)
    np.add.at(common, trace.request[group == 0], 1)

    def lay_out(column: np.ndarray, smallest: int = 64) -> jax.Array:
        return jnp.asarray(pad(column.astype(np.int32), 0, smallest))

    return Columns(
        block=lay_out(trace.block[access], SETTINGS),
        band=lay_out(_bands(claims, access, time_s), SETTINGS),
        rank=lay_out(rank, SETTINGS),
        group=lay_out(group[access], SETTINGS),
        block_of_rank=lay_out(block_of_rank, SETTINGS),
        start=lay_out(trace.start),
        stop=lay_out(trace.stop),
        due=jnp.asarray((trace.n_accesses + due).astype(np.int32)),
        pins=lay_out(claims.pins),
        common=lay_out(common),
        payer=lay_out(payer),
        parent=jnp.asarray(parents(trace)),
        node=lay_out(node),
        base=jnp.asarray(base),
        rows=jnp.zeros((rows, 0), jnp.int32),
    )


def _trees(n_blocks: int, home: np.ndarray, n_groups: int):
    """Where the tournaments lie: one of all blocks, one of each group's own.

    Returns:
        Leaves i32[M, 2] of each block, first rows i32[G + 1], rows in all.
    """
    own = np.bincount(home, minlength=n_groups + 1)
    sizes = [bucket(n_blocks), *(bucket(int(n), 2) for n in own[1:])]
    base = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
    node = np.zeros((n_blocks, 2), np.int32)
    node[:, 0] = sizes[0] + np.arange(n_blocks)
    for g in range(1, n_groups + 1):
        (members,) = np.nonzero(home == g)
        node[members, 1] = sizes[g] + np.arange(len(members))
    return node, base, bucket(sum(sizes))
