"""A learned network asked about one block, in plain Python, from its definition."""

import math

from perc.history import NAMES
from perc.policies.learned import FAR, PRICES


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def outputs(layers, member, x):
    """Of one network of the ensemble."""
    for i, (w, b) in enumerate(layers):
        w, b = w[member].tolist(), b[member].tolist()
        x = [sum(v * w[j][k] for j, v in enumerate(x)) + b[k] for k in range(len(b))]
        if i < len(layers) - 1:
            x = [gelu(v) for v in x]
    return x


def softmax(z):
    powers = [math.exp(v - max(z)) for v in z]
    return [p / sum(powers) for p in powers]


def normalised(network, row):
    """Inputs of the network, of one row of `perc.history`."""
    found = []
    for name, mean, scale in zip(
        network.inputs, network.mean.tolist(), network.scale.tolist(), strict=True
    ):
        z = (float(row[NAMES.index(name)]) - mean) / scale
        found.append(max(-FAR, min(FAR, z)))
    return found


def hazards(network, row):
    """Mean hazard of the ensemble by bin of age."""
    x, members = normalised(network, row), len(network.layers[0][0])
    each = [outputs(network.layers, m, x) for m in range(members)]
    return [
        sum(1 / (1 + math.exp(-z[b])) for z in each) / members
        for b in range(len(network.edges_s))
    ]


def best_rate(hazard, edges, first):
    """Hits per second of the best stay from the edge `first` on, all stays tried."""
    ends = [*edges[1:], 2 * edges[-1]]
    best = 0.0
    for last in range(first, len(edges)):
        alive, seconds = 1.0, 0.0
        for b in range(first, last + 1):
            rate = -math.log1p(-hazard[b]) / (ends[b] - edges[b])
            # The integral of the survival over the bin.
            seconds += alive * hazard[b] / rate
            alive *= 1 - hazard[b]
        best = max(best, (1 - alive) / seconds)
    return best


def leases(network, row, place):
    """Mean chance of each lease, at the price at a place in the range."""
    x, members = normalised(network, row), len(network.layers[0][0])
    each = [
        softmax(outputs(network.layers, m, [*x, 4 * place - 2])) for m in range(members)
    ]
    return [sum(keep[b] for keep in each) / members for b in range(len(each[0]))]


def log_worths(network, row):
    """Log worth by bin of age."""
    edges = network.edges_s.tolist()
    if network.head == "hazard":
        found = [min(max(h, 1e-7), 1 - 1e-6) for h in hazards(network, row)]
        return [math.log(best_rate(found, edges, b)) for b in range(len(edges))]
    low, high = (math.log(price) for price in network.prices.tolist())
    share = [0.0] * len(edges)
    for i in range(PRICES):
        keep = leases(network, row, (i + 0.5) / PRICES)
        for b in range(len(edges)):
            share[b] += sum(keep[b + 1 :]) / PRICES
    return [low + s * (high - low) for s in share]


def distances(network, row):
    """Squared distance of a row's log worths to those of every class."""
    point = log_worths(network, row)
    return [
        sum((p - c) ** 2 for p, c in zip(point, centre, strict=True))
        for centre in network.worths.tolist()
    ]


def worth_at(network, cls, age, place):
    """Worth of a class in a bin of age whose lower edge is `age`.

    `place` is the bin's number as a share of all.
    """
    edges = network.edges_s.tolist()
    column = max(b for b, edge in enumerate(edges) if edge <= age)
    beyond = math.log(max(age, edges[-1]) / edges[-1])
    return math.exp(float(network.worths[cls][column]) - beyond - 1e-3 * place)
