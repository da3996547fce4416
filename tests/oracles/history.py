"""What a server remembers, kept up request by request in plain Python.

Written from the comments of `perc.history.NAMES`, with dicts, as a live server would.
"""

from dataclasses import dataclass, field
from math import log2

NEVER_S = 86_400.0
RECENT_S = 60.0


@dataclass
class Request:
    """What a server knows of a request when it has run."""

    blocks: list[int]  # root first
    tokens: list[int]  # in each block
    depths: list[int]  # of each block: 0, 1, 2... unless the trace is a sample
    arrival_s: float
    input: int
    output: int
    session: int
    kind: str
    full: int = 4  # tokens of a full block


@dataclass
class Block:
    """What is remembered of a block."""

    first_s: float
    user: Request  # the last one
    uses: int = 0
    sessions: set = field(default_factory=set)
    children: set = field(default_factory=set)


@dataclass
class Seen:
    """How often something came, and when first and last."""

    first_s: float
    last_s: float
    times: int = 0


class Server:
    """Serves one request after another; its state is what it has served."""

    def __init__(self):
        self.blocks: dict[int, Block] = {}
        self.sessions: dict[int, Seen] = {}
        self.roots: dict[int, Seen] = {}
        self.followers: dict[int, int] = {}  # id of a request -> how many
        self.served: list[Request] = []

    def serve(self, request: Request) -> list[dict[str, float]]:
        """The columns of each of its blocks; then it is part of what is remembered."""
        row = self.of_session(request)
        rows = []
        if request.blocks:
            row |= self.of_request(request) | self.of_root(request)
            for end in run_ends(request, self.blocks):
                row = row | self.of_block(request, end)
                rows += [row] * (end + 1 - len(rows))
        self.remember(request)
        return rows

    def of_request(self, request):
        known = [self.blocks[b] for b in request.blocks if b in self.blocks]
        recent = [
            other
            for other in self.served
            if other.arrival_s >= request.arrival_s - RECENT_S
        ]
        reason = request.kind.split(":")[-1]
        return {
            "input": log(request.input),
            "output": log(request.output),
            "new": log(max(request.input - len(known) * request.full, 0)),
            "seen": len(known) / len(request.blocks),
            "filled": request.tokens[-1] / request.full,
            "rate": log(len(recent)),
            "tools": float(reason in ("tool_use", "tool_calls", "function_call")),
            "ended": float(reason in ("end_turn", "stop")),
            **self.of_before(request, known),
        }

    def of_before(self, request, known):
        if not known:
            names = "follows typed before_input before_output siblings".split()
            return dict.fromkeys(names, 0.0) | {"since": log(NEVER_S)}
        before = known[-1].user
        follows = len(known) >= len(before.blocks) - 1
        typed = max(request.input - before.input - before.output, 0)
        return {
            "follows": float(follows),
            "typed": log(typed) if follows else 0.0,
            "before_input": log(before.input),
            "before_output": log(before.output),
            "since": log(request.arrival_s - before.arrival_s),
            "siblings": log(self.followers.get(id(before), 0)),
        }

    def of_session(self, request):
        now, session = request.arrival_s, self.sessions.get(request.session)
        if session is None:
            never = log(NEVER_S)
            first = {"turn": log(1), "session_age": 0.0}
            return first | {"session_gap": never, "mean_gap": never}
        age = now - session.first_s
        return {
            "turn": log(session.times + 1),
            "session_age": log(age),
            "session_gap": log(now - session.last_s),
            "mean_gap": log(age / session.times),
        }

    def of_root(self, request):
        root = self.roots.get(request.blocks[0])
        if root is None:
            return {"prefix_users": 0.0, "prefix_gap": log(NEVER_S)}
        gap = request.arrival_s - root.last_s
        return {"prefix_users": log(root.times), "prefix_gap": log(gap)}

    def of_block(self, request, i):
        now, block = request.arrival_s, self.blocks.get(request.blocks[i])
        place = {
            "partial": float(request.tokens[i] < request.full),
            "depth": log(request.depths[i] + 1),
            "below": log(len(request.blocks) - i - 1),
        }
        if block is None:
            none = {"uses": 0.0, "age": 0.0, "children": 0.0, "sessions": log(1)}
            return place | none | {"gap": log(NEVER_S)}
        return place | {
            "uses": log(block.uses),
            "gap": log(now - block.user.arrival_s),
            "age": log(now - block.first_s),
            "children": log(len(block.children)),
            "sessions": log(len(block.sessions | {request.session})),
        }

    def remember(self, request):
        now = request.arrival_s
        known = [self.blocks[b] for b in request.blocks if b in self.blocks]
        if known:
            before = id(known[-1].user)
            self.followers[before] = self.followers.get(before, 0) + 1
        seen = [(self.sessions, request.session)]
        seen += [(self.roots, root) for root in request.blocks[:1]]
        for table, key in seen:
            entry = table.setdefault(key, Seen(now, now))
            entry.last_s = now
            entry.times += 1
        for i, number in enumerate(request.blocks):
            block = self.blocks.setdefault(number, Block(now, request))
            block.user = request
            block.uses += 1
            block.sessions.add(request.session)
            block.children.update(request.blocks[i + 1 : i + 2])
        self.served.append(request)


def run_ends(request, known):
    """Where the runs of a request's blocks end."""

    def sort_of(i):
        block = known.get(request.blocks[i])
        return block and id(block.user), request.tokens[i] < request.full

    last = len(request.blocks) - 1
    return [i for i in range(last) if sort_of(i) != sort_of(i + 1)] + [last]


def log(x):
    return log2(1 + x)


def requests_of(trace):
    """The requests of a trace as a server meets them."""
    for r in range(trace.n_requests):
        mine = slice(int(trace.start[r]), int(trace.stop[r]))
        yield Request(
            blocks=trace.block[mine].tolist(),
            tokens=trace.tokens[mine].tolist(),
            depths=trace.depth[mine].tolist(),
            arrival_s=float(trace.arrival_s[r]),
            input=int(trace.input_tokens[r]),
            output=int(trace.output_tokens[r]),
            session=int(trace.session[r]),
            kind=trace.kinds[trace.kind[r]],
            full=trace.block_tokens,
        )
