"""A step of a transformer, counted token by token and layer by layer."""

import math


def windows(model):
    """Window of every layer, infinity for none."""
    period = model.windows or (0,)
    return [period[n % len(period)] or math.inf for n in range(model.layers)]


def kv_bytes(model, tokens, *, bytes_of_number=2.0):
    """Bytes that the cache of a sequence holds on one accelerator alone."""
    total = 0.0
    for window in windows(model):
        for _ in range(int(min(tokens, window))):
            if model.latent:
                numbers = model.latent.kv_rank + model.latent.rope
            else:
                numbers = 2 * model.kv_heads * model.head_size
            total += numbers * bytes_of_number
    return total


def prefill_flops(model, tokens, cached):
    """FLOPs of the tokens behind the cached ones; a token sees half of itself."""
    total = 0.0
    for position in range(cached, tokens):
        total += 2 * model.active_parameters
        for window in windows(model):
            # The integral from position to position + 1 of min(x, window).
            inside = max(min(position + 1, window) - position, 0)
            seen = inside * (position + inside / 2) + (1 - inside) * min(window, 1e18)
            total += 4 * model.query_heads * model.head_size * seen
    return total


def experts_touched(count, active, tokens):
    """Expected share of experts that uniform routing touches."""
    return 1 - (1 - active / count) ** tokens
