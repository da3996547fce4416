"""Traffic whose best policy is known: an output's length tells what comes back, when.

Every second a prompt comes that is sent again `GAP_S` later, and some that are not. The
server sees it: an answer that will be followed up has `LONG` tokens, others have
`SHORT`. So at `ROOM` blocks all can be hit that ever will, and LRU, which keeps what
does not return as long as what does, hits nothing.
"""

import numpy as np

from perc.traces.build import Columns, build_trace
from perc.types import Trace

GAP_S = 20.0
LONG, SHORT = 500, 10  # tokens
BLOCKS = 4  # of a prompt
ROOM = 120  # blocks: `GAP_S` prompts that wait, and some that run
TOKENS = 16


def traffic(seed: int = 0, *, one_shot: int = 4, seconds: int = 100) -> Trace:
    """The trace, with `one_shot` prompts a second that do not return."""
    draws = np.random.default_rng(seed)
    rows = []  # arrival, output, name of the prompt
    for second in range(seconds):
        name = 10 * second
        asked = second + draws.uniform(0, 0.5)
        again = asked + GAP_S * draws.uniform(0.9, 1.1)
        rows += [(asked, LONG, name), (again, SHORT, name)]
        for i in range(one_shot):
            rows.append((second + draws.uniform(0.5, 1), SHORT, name + 1 + i))
    rows.sort()
    n = len(rows)
    names = np.array([name for *_, name in rows])
    return build_trace(
        Columns(
            arrival_s=np.array([row[0] for row in rows]),
            input_tokens=np.full(n, BLOCKS * TOKENS),
            output_tokens=np.array([row[1] for row in rows]),
            ids=(names[:, None] * BLOCKS + np.arange(BLOCKS)).ravel(),
            lengths=np.full(n, BLOCKS),
            session=names,
        ),
        block_tokens=TOKENS,
        source="known",
    )
