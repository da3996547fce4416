"""Attention in plain NumPy, one query and one head at a time, in float64."""

import numpy as np


def one(query, keys, values):
    """Output [D] and weights [t] of a query [D] over keys and values [t, D]."""
    products = np.array([key @ query for key in keys]) / np.sqrt(len(query))
    raised = np.exp(products - products.max())
    share = raised / raised.sum()
    return share @ values, share


def causal(queries, keys, values):
    """[n, H, D]; query head h reads key-value head h // (H / G)."""
    queries, keys, values = (np.asarray(x, np.float64) for x in (queries, keys, values))
    group = queries.shape[1] // keys.shape[1]
    out = np.zeros(queries.shape)
    for i in range(len(queries)):
        for h in range(queries.shape[1]):
            g = h // group
            out[i, h], _ = one(queries[i, h], keys[: i + 1, g], values[: i + 1, g])
    return out


def rotate(x, position, base=10_000.0):
    """A vector [D] turned to a position."""
    half = len(x) // 2
    turned = np.array(x, np.float64)
    for i in range(half):
        angle = position * base ** (-i / half)
        c, s = np.cos(angle), np.sin(angle)
        turned[i] = x[i] * c - x[i + half] * s
        turned[i + half] = x[i + half] * c + x[i] * s
    return turned


def sinks(queries, keys, values, n_sinks, window):
    """The output [H, D] of the last query over what is kept, positions counted anew."""
    queries, keys, values = (np.asarray(x, np.float64) for x in (queries, keys, values))
    n = len(queries)
    kept = [i for i in range(n) if i < n_sinks or i >= n - window]
    group = queries.shape[1] // keys.shape[1]
    out = np.zeros(queries.shape[1:])
    for h in range(queries.shape[1]):
        turned = [rotate(keys[i, h // group], at) for at, i in enumerate(kept)]
        query = rotate(queries[-1, h], len(kept) - 1)
        out[h], _ = one(query, turned, values[kept, h // group])
    return out, kept


def heavy(queries, keys, values, budget, recent):
    """Outputs [T, H, D], and for each token and key-value head the positions kept."""
    queries, keys, values = (np.asarray(x, np.float64) for x in (queries, keys, values))
    group = queries.shape[1] // keys.shape[1]
    out, kept = np.zeros(queries.shape), []
    mass: list[dict] = [{} for _ in range(keys.shape[1])]
    for t in range(len(queries)):
        for g, mine in enumerate(mass):
            if len(mine) == budget:
                old = [i for i in mine if i <= t - recent]
                del mine[min(old, key=lambda i: (mine[i], i))]
            mine[t] = 0.0
            at = sorted(mine)
            for h in range(g * group, (g + 1) * group):
                out[t, h], share = one(queries[t, h], keys[at, g], values[at, g])
                for i, more in zip(at, share, strict=True):
                    mine[i] += more
        kept.append([sorted(mine) for mine in mass])
    return out, kept
