"""What the flags of `perc simulate` become: a server, its costs, and its traffic."""

from typing import TYPE_CHECKING

from perc.cli.serving_flags import (
    SPIKE_MULTIPLIER,
    TIERS,
    Arrivals,
    Machine,
    Retaining,
    Scheduling,
    Tiers,
)
from perc.errors import InputError, check_number, check_whole

if TYPE_CHECKING:
    from perc.roofline import Roofline
    from perc.serving.offload import Offload
    from perc.serving.settings import Retention, Server
    from perc.types import AnyPolicy, Trace


def in_order(policies: "list[AnyPolicy]", price: float | None) -> "list[AnyPolicy]":
    """The policies as the simulator can follow them: learned ones at a price as leases.

    Raises:
        InputError: for a policy that it does not follow, a price that is not above 0,
            or one that none of them asks for.
    """
    from dataclasses import replace

    from perc.policies.learned import network_of
    from perc.policies.learned_key import lease_key
    from perc.serving.simulate import check_policy

    if price is not None:
        check_number("simulate", "--price", price, above=True)
        if not any(network_of(policy) for policy in policies):
            names = ", ".join(policy.name for policy in policies)
            raise InputError(
                f"--price {price:g} changes nothing: of {names} none is a learned "
                "policy; leave it out, or name a file of perc train, mine.npz."
            )
    found = []
    for policy in policies:
        network = network_of(policy)
        if price is not None and network is not None:
            policy = replace(lease_key(network, price), name=policy.name)
        check_policy(policy)
        found.append(policy)
    return found


def loads_of(text: str) -> list[float]:
    """The loads of a comma list, each once.

    Raises:
        InputError: for a word that is no number.
    """
    found = []
    for word in text.split(","):
        try:
            found.append(float(word))
        except ValueError:
            raise InputError(
                f"--load {text}: {word!r} is no number; give such as 0.5,1,2."
            ) from None
    return list(dict.fromkeys(found))


def check_arrivals(arrivals: Arrivals) -> None:
    """Refuses flags that would change nothing, or not what they say.

    Raises:
        InputError: for a multiplier without a spike, for times of arrivals that a
            closed loop does not follow, and for a seed that is none.
    """
    check_whole("simulate", "--seed", arrivals.seed, 0, 2**32 - 1)
    if arrivals.spike is None and arrivals.spike_multiplier != SPIKE_MULTIPLIER:
        raise InputError("--spike-multiplier without --spike changes nothing; add it.")
    drawn = {"--poisson": arrivals.poisson, "--spike": arrivals.spike}
    for flag, value in drawn.items():
        if arrivals.closed_loop and value is not None:
            raise InputError(
                f"{flag} {value:g} with --closed-loop: a closed loop waits for the "
                f"recorded gaps between turns, which {flag} would replace. Leave one "
                "of them out; --load goes with both."
            )


def arriving(trace: "Trace", arrivals: Arrivals, load: float) -> "Trace":
    """The trace with the arrivals that the flags ask for, `load` times as fast.

    Raises:
        InputError: if a number is out of range.
    """
    from perc.serving.arrivals import poisson, scaled, spike

    if arrivals.poisson is not None:
        trace = poisson(trace, arrivals.poisson, seed=arrivals.seed)
    trace = scaled(trace, load)
    if arrivals.spike is not None:
        trace = spike(trace, arrivals.spike, multiplier=arrivals.spike_multiplier)
    return trace


def order_note(trace: "Trace", order: str) -> str | None:
    """What to say of an order that the trace has nothing for; None if it has."""
    import numpy as np

    if order not in ("priority", "deadline"):
        return None
    equal = len(np.unique(trace.priority)) <= 1
    none_due = not np.isfinite(trace.deadline_s).any()
    if equal and (order == "priority" or none_due):
        lacks = "all priorities are equal"
        lacks += " and there are no deadlines" if order == "deadline" else ""
        return f"{lacks} in {trace.source}: --order {order} is fcfs."
    if order == "deadline" and none_due:
        return f"no deadlines in {trace.source}: --order deadline is priority."
    return None


def server_of(
    trace: "Trace",
    machine: Machine,
    scheduling: Scheduling,
    arrivals: Arrivals,
    tiers: Tiers,
    retaining: Retaining,
) -> "tuple[Roofline, Server]":
    """What a step costs, and the server.

    Raises:
        InputError: for an unknown name, a number out of range, a model that leaves no
            room, or a flag that would change nothing.
    """
    from perc.hardware import accelerator
    from perc.kv_memory import (
        activation_bytes,
        block_bytes,
        kv_budget_bytes,
        weight_bytes,
    )
    from perc.model_shapes import model
    from perc.roofline import Efficiency, roofline
    from perc.serving.settings import Server

    shape, card = model(machine.model), accelerator(machine.gpu)
    reached = Efficiency(machine.mfu, machine.mbu, machine.overhead)
    cost = roofline(shape, card, tp=machine.tp, kv=machine.kv, efficiency=reached)
    blocks = machine.blocks
    if blocks is None:
        budget = kv_budget_bytes(
            card.memory_bytes,
            weight_bytes(shape, None, machine.tp),
            activations=activation_bytes(shape, scheduling.token_budget, machine.tp),
        )
        each = block_bytes(shape, trace.block_tokens, machine.kv, machine.tp)
        blocks = int(float(budget) // each)
        if not blocks:
            raise InputError(
                f"{machine.model} on {machine.tp} x {card.name} leaves no room for a "
                f"block of {trace.block_tokens} tokens; give a larger --tp or --gpu."
            )
    return cost, Server(
        blocks,
        token_budget=scheduling.token_budget,
        max_running=scheduling.max_running,
        max_queue=scheduling.max_queue,
        order=scheduling.order,
        batching=scheduling.batching,
        chunked=not scheduling.whole_prompts,
        closed_loop=arrivals.closed_loop,
        cache_outputs=scheduling.cache_outputs,
        offload=offload_of(trace, machine, tiers),
        retention=_retention(retaining),
    )


def _retention(given: Retaining) -> "Retention | None":
    from perc.serving.settings import Retention

    values = (given.retain_threshold, given.retain_default, given.retain_most)
    if not given.retain:
        if values != (None, None, None):
            raise InputError("--retain-... without --retain changes nothing; add it.")
        return None
    threshold, default_s, most_s = values
    return Retention(
        threshold=100 if threshold is None else threshold,
        default_ttl_s=0.0 if default_s is None else default_s,
        most_s=most_s,
    )


def offload_of(trace: "Trace", machine: Machine, tiers: Tiers) -> "Offload | None":
    """The tiers below the GPU; None without.

    Raises:
        InputError: for a tier that is none, or flags without a tier.
    """
    from perc.hardware import accelerator, link
    from perc.model_shapes import model
    from perc.serving.offload import Offload, lower_tier, parse_tier

    if not tiers.tier:
        if tiers != TIERS:
            raise InputError("--tier-... without --tier changes nothing; add one.")
        return None
    memory = accelerator(machine.gpu).bytes_per_s * machine.mbu
    named = [parse_tier(text) for text in tiers.tier]
    names = ["gpu", *(one.name.lower() for one in named)]
    for one in named:
        if names.count(one.name.lower()) > 1:
            raise InputError(
                f"--tier {one.name}: the GPU or another tier is called so; give each a "
                "name of its own."
            )
    return Offload(
        tuple(
            lower_tier(
                one.name,
                one.size_bytes,
                link(one.way),
                model(machine.model),
                trace.block_tokens,
                gpu_kv=machine.kv,
                kv=one.kv,
                tp=machine.tp,
                memory_bytes_per_s=memory,
            )
            for one in named
        ),
        placement=tiers.tier_placement,
        write=tiers.tier_write,
        store=tiers.tier_store,
        load=tiers.tier_load,
        prefetch=tiers.tier_prefetch,
    )
