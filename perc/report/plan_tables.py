"""A plan for the terminal: tables, and what they mean in sentences."""

from rich import box
from rich.table import Table

from perc.plan import Plan
from perc.plan_curves import Knee, Point
from perc.plan_needs import Need

CURVE_ROWS = 8


def needs_table(plan: Plan) -> Table:
    """One section a target, one line a policy."""
    table = _table("[ ]: 95 % interval over sessions; *: clairvoyant bound")
    table.add_column("target", no_wrap=True)
    table.add_column("policy", overflow="fold")
    for name in ("blocks", "GiB", "of LRU's"):
        table.add_column(name, justify="right", no_wrap=True)
    for first, group in _groups(plan.needs, lambda need: (need.goal, need.target)):
        for need in group:
            table.add_row(
                describe_goal(need) if need is first else "",
                _marked(need.policy, plan),
                *_capacity(need, plan),
                end_section=need is group[-1],
            )
    return table


def curve_table(plan: Plan) -> Table:
    """What each policy hits at some capacities of the grid, and what more would buy."""
    table = _table(
        "±: half of the 95 % interval; saved: prefill seconds that one more GiB saves "
        "in an hour"
    )
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("policy", overflow="fold")
    for name in (
        "block\nhits %",
        "points\nover LRU",
        "TTFT s\np50",
        "\np95",
        "saved\ns",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    sizes = sorted({point.capacity_blocks for point in plan.points})
    steps = min(CURVE_ROWS, len(sizes))
    shown = {
        sizes[round(i * (len(sizes) - 1) / max(steps - 1, 1))] for i in range(steps)
    }
    points = sorted(
        (point for point in plan.points if point.capacity_blocks in shown),
        key=lambda point: point.capacity_blocks,
    )
    for first, group in _groups(points, lambda point: point.capacity_blocks):
        for point in group:
            saved = point.saved_s_per_gib_hour
            table.add_row(
                gib(point.capacity_gib) if point is first else "",
                _marked(point.policy, plan),
                _points(point.block_hit_ratio, *_ends(point, "block_hit_ratio")),
                ""
                if point.policy == "lru"
                else _points(point.over_lru, *_ends(point, "over_lru"), sign="+"),
                f"{point.ttft_p50_s:.3g}",
                f"{point.ttft_p95_s:.3g}",
                "" if saved is None else f"{saved:.3g}",
                end_section=point is group[-1],
            )
    return table


def sentences(plan: Plan) -> list[str]:
    """What a planner wants to know, in words."""
    if not plan.ideal_block_hit_ratio:
        return ["No counted request finds a block seen before: no cache helps here."]
    found = []
    for _, group in _groups(plan.needs, lambda need: (need.goal, need.target)):
        choices = [need for need in group if need.policy not in plan.clairvoyant]
        found += [_headline(choices)] if choices else []
    return found + [_knee_sentence(knee, plan) for knee in plan.knees]


def describe_goal(need: Need) -> str:
    """The target in words, such as "TTFT p95 <= 0.5 s"."""
    if need.goal.startswith("ttft_"):
        return f"TTFT {need.goal.split('_')[1]} <= {need.target:g} s"
    word = {
        "block_hit_ratio": "of blocks",
        "token_hit_ratio": "of tokens",
        "share_of_ideal": "of the ideal",
    }
    return f"{100 * need.target:.4g} % {word[need.goal]}"


def gib(size: float) -> str:
    """A capacity with three digits, or whole above a hundred."""
    return f"{size:,.0f}" if size >= 100 else f"{size:.3g}"


def _headline(needs: list[Need]) -> str:
    goal = describe_goal(needs[0])
    able = [need for need in needs if need.capacity_blocks is not None]
    if not able:
        best = needs[0].best
        value = f"{best:.3g} s" if needs[0].goal.startswith("ttft_") else f"{best:.1%}"
        return f"{goal}: no cache reaches it; with everything cached it is {value}."
    best = min(able, key=lambda need: need.capacity_blocks or 0)
    text = f"{goal}: {best.policy} needs {gib(best.capacity_gib or 0)} GiB"
    lru = next((need for need in able if need.policy == "lru"), None)
    if lru is None or lru is best:
        return f"{text}, the least of these policies."
    text += f", lru {gib(lru.capacity_gib or 0)} GiB"
    if best.of_lru is None or best.of_lru_low is None or best.of_lru_high is None:
        return f"{text}."
    ends = f"{best.of_lru_low - 1:+.0%} to {best.of_lru_high - 1:+.0%}"
    sure = "" if best.of_lru_high < 1 else "; it may be no less at all"
    return f"{text}: {best.of_lru - 1:+.0%} memory (95 % interval {ends}{sure})."


def _knee_sentence(knee: Knee, plan: Plan) -> str:
    own = [point for point in plan.points if point.policy == knee.policy]
    steps = [p for p in own if p.saved_s_per_gib_hour is not None]
    text = (
        f"Knee of {_marked(knee.policy, plan)}: {gib(knee.capacity_gib)} GiB "
        f"({knee.capacity_blocks:,} blocks), {knee.block_hit_ratio:.1%} of blocks"
    )
    at = [p for p in steps if p.capacity_blocks == knee.capacity_blocks]
    if not at:
        return f"{text}."
    steepest = max(steps, key=lambda p: p.saved_s_per_gib_hour or 0)
    return (
        f"{text}; one more GiB there saves {at[0].saved_s_per_gib_hour:.2g} s of "
        f"prefill an hour, at {gib(steepest.capacity_gib)} GiB "
        f"{steepest.saved_s_per_gib_hour:.2g} s, the most."
    )


def _table(caption: str) -> Table:
    return Table(box=box.SIMPLE_HEAD, caption=caption, pad_edge=False)


def _groups(rows: list, key) -> list[tuple]:
    """Rows of one key together, in order of appearance: (first, all)."""
    groups: dict = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return [(group[0], group) for group in groups.values()]


def _marked(policy: str, plan: Plan) -> str:
    return policy + ("*" if policy in plan.clairvoyant else "")


def _capacity(need: Need, plan: Plan) -> tuple[str, str, str]:
    if need.capacity_blocks is None or need.capacity_gib is None:
        return "never", "never", ""
    per_block = need.capacity_gib / need.capacity_blocks if need.capacity_blocks else 0
    size = gib(need.capacity_gib)
    if need.low_blocks is not None:
        high = (
            "never" if need.high_blocks is None else gib(need.high_blocks * per_block)
        )
        size += f" [{gib(need.low_blocks * per_block)}, {high}]"
    share = "" if need.of_lru is None else f"{need.of_lru:.0%}"
    if need.of_lru_low is not None and need.policy != "lru":
        share += f" [{need.of_lru_low:.0%}, {need.of_lru_high:.0%}]"
    return f"{need.capacity_blocks:,}", size, share


def _ends(point: Point, name: str) -> tuple[float | None, float | None]:
    return getattr(point, f"{name}_low"), getattr(point, f"{name}_high")


def _points(
    value: float, low: float | None, high: float | None, *, sign: str = ""
) -> str:
    text = f"{100 * value:{sign}.1f}"
    return text if low is None or high is None else f"{text} ±{50 * (high - low):.1f}"
