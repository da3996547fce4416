"""Makes every picture of the guide: `python docs/guide/pictures.py [NAME...]`.

One function a chapter, named like the file that it writes, NAME.svg, beside this one.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import altair as alt
import jax
import jax.numpy as jnp
import numpy as np

import perc
from perc.advice_traffic import sharing
from perc.attention.decoder import token_forwards
from perc.block_memory import fragmentation
from perc.curves import lru_curve
from perc.deployment import Deployment, requests_at_once
from perc.hardware import accelerator
from perc.kernels.formats import FORMATS, bytes_saved
from perc.kernels.quantised import dequantise, quantise
from perc.model_shapes import model
from perc.policies.registry import registry
from perc.roofline import roofline
from perc.serving.metrics import latencies
from perc.serving.settings import Server
from perc.serving.simulate import simulate
from perc.tiers import Tier, lru_tier_hits

HERE = Path(__file__).parent
REQUESTS = 1500
WIDTH, HEIGHT = 480, 260
# Text is measured in one font and shown in another, up to a fifth wider.
PADDING = {"left": 40, "right": 24, "top": 6, "bottom": 6}
Picture = alt.Chart | alt.LayerChart | alt.FacetChart


def why() -> alt.Chart:
    """Tokens sent through the model, with a cache and without."""
    rows = [
        {"answer": n, "tokens": token_forwards(128, n, cached=cached), "way": way}
        for n in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
        for cached, way in ((True, "with a cache"), (False, "without"))
    ]
    return _lines(
        rows,
        x=alt.X("answer:Q", title="tokens of the answer").scale(type="log", base=2),
        y=alt.Y("tokens:Q", title="tokens through the model").scale(type="log"),
        colour="way:N",
        title="After a prompt of 128 tokens",
    )


def cost() -> alt.Chart:
    """Requests that fit on 80 GiB, by their length."""
    rows = [
        {"context": n, "at once": fits, "model": name}
        for name in ("llama-2-7b", "llama-3.1-8b", "qwen2.5-14b")
        for n in (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
        if (fits := _fits(name, n))
    ]
    return _lines(
        rows,
        x=alt.X("context:Q", title="tokens of a request").scale(type="log", base=2),
        y=alt.Y("at once:Q", title="requests at once").scale(type="log"),
        colour="model:N",
        title="What one H100 holds, 16-bit cache",
    )


def paging() -> alt.Chart:
    """Memory without a token in it, by size of the block."""
    lengths = np.random.default_rng(0).lognormal(5, 0.8, 10_000).astype(int)
    lengths = lengths.clip(1, 2048)
    rows = []
    for block in (16, 32, 64, 128, 256):
        waste = fragmentation(lengths, max_tokens=2048, block_tokens=block)
        rows.append({"way": f"blocks of {block}", "wasted": waste.paged})
    rows.append({"way": "one piece of 2,048", "wasted": waste.contiguous})
    return _bars(
        rows,
        x=alt.X("wasted:Q", title="reserved, but empty").axis(format="%"),
        y=alt.Y("way:N", title=None, sort=None),
        title="10,000 sequences of 204 tokens on mean",
    )


def sharing_of_workloads() -> alt.Chart:
    """Who sent first what is sent again."""
    rows = []
    for name in ("chat", "agent", "rag"):
        found = sharing(perc.make(name, requests=REQUESTS))
        for part, share in (
            ("1 own turns", found.own),
            ("2 others'", found.others),
            ("3 new", found.new),
        ):
            rows.append({"workload": name, "share": share, "part": part})
    return (
        alt.Chart(alt.Data(values=rows), title="Prompt tokens, by who sent them before")
        .mark_bar()
        .encode(
            alt.X("share:Q", title="of all prompt tokens").axis(format="%"),
            alt.Y("workload:N", title=None, sort=None),
            alt.Color("part:N", title=None).scale(scheme="tableau10"),
            alt.Order("part:N"),
        )
        .properties(width=WIDTH, height=120)
    )


def eviction() -> alt.Chart:
    """Hits over the size of the cache, beside the bound."""
    trace = perc.make("chat", requests=REQUESTS)
    sizes = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    rows = perc.compare(trace, ["lru", "fifo", "lfu", "belady"], sizes).rows
    return _lines(
        [
            {"blocks": r.capacity_blocks, "hits": r.block_hit_ratio, "policy": r.policy}
            for r in rows
        ],
        x=alt.X("blocks:Q", title="blocks of the cache").scale(type="log", nice=False),
        y=alt.Y("hits:Q", title="blocks hit").axis(format="%"),
        colour="policy:N",
        title="1,500 requests of chats, `perc make chat`",
    )


def prediction() -> alt.Chart:
    """How likely a block comes back, by how long it has been idle."""
    trace = perc.make("chat", requests=4 * REQUESTS)
    arrival = trace.arrival_s[trace.request]
    gap = np.where(trace.next >= 0, arrival[trace.next] - arrival, np.inf)
    first = trace.prev < 0
    rows = []
    for idle in range(0, 601, 30):
        seen = arrival + idle + 300 <= arrival[-1]
        for mine, kind in ((first, "used once"), (~first, "used before")):
            waiting = seen & mine & (gap > idle)
            share = float((gap[waiting] <= idle + 300).mean())
            rows.append({"idle": idle, "back": share, "blocks": kind})
    return _lines(
        rows,
        x=alt.X("idle:Q", title="seconds since the last use"),
        y=alt.Y("back:Q", title="back within 5 minutes").axis(format="%"),
        colour="blocks:N",
        title="What a policy can know of an idle block",
    )


def compression() -> alt.Chart:
    """Error against size, by format."""
    page = (16, 8, 128)
    keys = jax.random.normal(jax.random.key(0), (64, *page)).at[..., 7].multiply(20)
    rows = []
    for name, form in FORMATS.items():
        back = dequantise(quantise(keys, form), form, page, jnp.float32)
        error = float(jnp.sqrt(jnp.mean((back - keys) ** 2)) / keys.std())
        saved = f"{name} ({bytes_saved(form, page, 2):.1f} x)"
        rows.append({"format": saved, "error": error})
    rows.sort(key=lambda row: row["error"])
    return _bars(
        rows,
        x=alt.X("error:Q", title="error / standard deviation"),
        y=alt.Y("format:N", title=None, sort=None).axis(labelLimit=300),
        title="Keys with one channel 20 times as large; x: times fewer bytes",
    )


def tiers() -> alt.Chart:
    """Hits of the accelerator and of the host's memory below it."""
    trace = perc.make("chat", requests=REQUESTS)
    gpu = trace.n_blocks // 50
    rows = []
    for times in (0, 1, 2, 4, 8, 16, 32):
        below = [Tier("gpu", gpu, 1), Tier("host", times * gpu, 1)]
        hits = lru_tier_hits(trace, below).sum(axis=1) / trace.n_accesses
        for place, share in zip(("1 GPU", "2 host memory"), hits, strict=True):
            rows.append({"times": f"{times}", "hits": float(share), "tier": place})
    return (
        alt.Chart(alt.Data(values=rows), title="Blocks hit, by where they were")
        .mark_bar()
        .encode(
            alt.X("times:N", title="host memory, times the GPU's", sort=None).axis(
                labelAngle=0
            ),
            alt.Y("hits:Q", title="blocks hit").axis(format="%"),
            alt.Color("tier:N", title=None).scale(scheme="tableau10"),
            alt.Order("tier:N"),
        )
        .properties(width=WIDTH, height=HEIGHT)
    )


def serving() -> alt.Chart:
    """How long first tokens take, by load."""
    price = roofline(model("llama-3.1-8b"), accelerator("h100"))
    rows = []
    for load in (0.3, 0.4, 0.5, 0.6, 0.7):
        trace = perc.make("chat", requests=REQUESTS, sessions_per_s=load)
        for name in ("lru", "perc_decay", "belady"):
            served = simulate(trace, registry[name](), Server(800), price)
            wait = float(np.nanpercentile(latencies(served)["ttft_s"], 95))
            rows.append({"load": load, "wait": wait, "policy": name})
    return _lines(
        rows,
        x=alt.X("load:Q", title="conversations that start a second").scale(zero=False),
        y=alt.Y("wait:Q", title="s to the first token, p95").scale(type="log"),
        colour="policy:N",
        title="Llama 3.1 8B on one H100, by the cost model",
    )


def choosing() -> Picture:
    """Tokens hit over GiB, with the accelerator's memory marked."""
    trace = perc.make("chat", requests=REQUESTS)
    at = Deployment(model("llama-3.1-8b"), accelerator("h100"), context_tokens=8192)
    gib = 131_072 * trace.block_tokens / 2**30
    curve = lru_curve(trace, weights=trace.tokens) / trace.input_tokens.sum()
    blocks = np.unique(np.geomspace(8, trace.n_blocks, 60).astype(int))
    rows = [{"gib": float(n * gib), "hits": float(curve[n])} for n in blocks]
    line = (
        alt.Chart(alt.Data(values=rows), title="LRU at every size; dashed: one H100")
        .mark_line()
        .encode(
            alt.X("gib:Q", title="GiB of cache").scale(type="log", nice=False),
            alt.Y("hits:Q", title="prompt tokens hit").axis(format="%"),
        )
    )
    room = requests_at_once(at) * at.context_tokens * 131_072 / 2**30
    mark = (
        alt.Chart(alt.Data(values=[{"gib": room}]))
        .mark_rule(strokeDash=[5, 4])
        .encode(alt.X("gib:Q"))
    )
    return alt.layer(line, mark).properties(width=WIDTH, height=HEIGHT)


PICTURES: dict[str, Callable[[], Picture]] = {
    "01-why": why,
    "02-cost": cost,
    "03-paging": paging,
    "04-sharing": sharing_of_workloads,
    "05-eviction": eviction,
    "06-prediction": prediction,
    "07-compression": compression,
    "08-tiers": tiers,
    "09-serving": serving,
    "10-choosing": choosing,
}


def _fits(name: str, context: int) -> int:
    at = Deployment(model(name), accelerator("h100"), context_tokens=context)
    return requests_at_once(at)


def _lines(rows: list[dict], *, x, y, colour: str, title: str) -> alt.Chart:
    return (
        alt.Chart(alt.Data(values=rows), title=title)
        .mark_line(point=True)
        .encode(x, y, alt.Color(colour, title=None).scale(scheme="tableau10"))
        .properties(width=WIDTH, height=HEIGHT)
    )


def _bars(rows: list[dict], *, x, y, title: str) -> alt.Chart:
    return (
        alt.Chart(alt.Data(values=rows), title=title)
        .mark_bar()
        .encode(x, y)
        .properties(width=WIDTH, height=160)
    )


if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        chart = PICTURES[name]().configure(background="white", padding=PADDING)
        chart.save(str(HERE / f"{name}.svg"))
        print(f"{name}.svg {(HERE / f'{name}.svg').stat().st_size:,} bytes")
