"""The lease game and imitation in float64, from their definitions; for gradients."""

import numpy as np


def outputs(net, x):
    """Of a network ((w, b), ...), f64[S, B]."""
    for i, (w, b) in enumerate(net):
        x = x @ w + b
        if i < len(net) - 1:
            x = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x


def mean_reward(net, x, gaps, weights, edges, prices, place):
    """Of the leases that the network draws, example by example."""
    total = 0.0
    z = outputs(net, np.concatenate([x, 4 * place[:, None] - 2], axis=1))
    for s, gap in enumerate(gaps):
        price = prices[0] * (prices[1] / prices[0]) ** place[s]
        chances = np.exp(z[s] - z[s].max())
        for chance, lease in zip(chances / chances.sum(), edges, strict=True):
            used = gap < lease
            stayed = gap if used else lease
            total += weights[s] * chance * (used - price * stayed)
    return total / len(gaps)


def cross_entropy(net, x, used, there):
    """Mean over bins that were watched."""
    p = 1 / (1 + np.exp(-outputs(net, x)))
    each = np.where(used > 0, -np.log(p), -np.log(1 - p))
    return (there * each).sum() / there.sum()


def slopes(value, net, step=1e-5):
    """Central differences of `value(net)` by each number of a network, flat f64."""
    net = [[np.array(part, np.float64) for part in layer] for layer in net]
    found = []
    for layer in net:
        for part in layer:
            for i in np.ndindex(part.shape):
                kept = part[i]
                part[i] = kept + step
                ahead = value(net)
                part[i] = kept - step
                found.append((ahead - value(net)) / (2 * step))
                part[i] = kept
    return np.array(found)
