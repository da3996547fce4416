"""`perc hardware`: the accelerators, and what one model does on each of them."""

import json as json_module
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import FlagCreatePairsOff, arg

from perc.cli.unused import changed, refuse

if TYPE_CHECKING:
    from perc.deployment import CostReport

Order = Literal["together", "alone", "requests", "price", "memory", "bandwidth", "name"]


def hardware(
    *,
    model: Annotated[str, arg(metavar="MODEL")] = "llama-3.1-8b",
    sort: Order = "together",
    tp: int = 1,
    context: int = 8192,
    kv: str = "fp16",
    weights: str | None = None,
    utilisation: float = 0.9,
    activations: Annotated[float | None, arg(metavar="GIB")] = None,
    mfu: float = 0.5,
    mbu: float = 0.8,
    usd_per_hour: Annotated[str, arg(metavar="CARD=USD,...")] = "",
    links: FlagCreatePairsOff[bool] = False,
    json: FlagCreatePairsOff[bool] = False,
) -> None:
    """Compare accelerators: what each holds and decodes of one model, best first.

    Args:
        model: whose requests are served.
        sort: decode of all that fits together, of one alone, requests at once, price
            of answer tokens, memory, bandwidth or name.
        tp: tensor parallelism, accelerators that share the model.
        context: tokens of a request.
        kv: format of the cache: fp16, fp8, fp8-per-token, int8, int4.
        weights: bf16, fp8, int8, int4, mxfp4; by default as published.
        utilisation: share of the memory that the server may use.
        activations: GiB for a step's activations; by default an estimate.
        mfu: share of the dense peak that is reached.
        mbu: share of the memory bandwidth that is reached.
        usd_per_hour: prices of single cards, such as h100=2.49,l4=0.8, instead of the
            catalogue's.
        links: list the links instead; takes --json only.
        json: print one JSON object instead of the table.

    Raises:
        InputError: if a name is unknown, a number is not as it must be, or a flag would
            change nothing.
    """
    from perc.hardware import ACCELERATORS
    from perc.model_shapes import model as named

    if links:
        given = {"model": model, "sort": sort, "tp": tp, "context": context, "kv": kv}
        given |= {"weights": weights, "utilisation": utilisation, "mfu": mfu}
        given |= {"activations": activations, "mbu": mbu, "usd_per_hour": usd_per_hour}
        refuse(changed(hardware, given), "--links, which takes --json only")
        _links(json)
        return
    prices, shape = _prices(usd_per_hour), named(model)
    rows = [
        _row(
            card,
            shape,
            tp=tp,
            context_tokens=context,
            kv=kv,
            weights=weights,
            utilisation=utilisation,
            activations_gib=activations,
            efficiency=(mfu, mbu),
            usd_per_hour=prices.get(card.name),
        )
        for card in ACCELERATORS
    ]
    rows.sort(key=lambda row: _key(row, sort))
    if json:
        found = {"model": shape.name, "rows": [row.as_dict() for row in rows]}
        print(json_module.dumps(found, allow_nan=False))
        return
    _print(rows, f"{shape.name}, requests of {context:,} tokens, {tp} of each card")


def _row(card, shape, *, efficiency: tuple[float, float], **options) -> "CostReport":
    from perc.deployment import Deployment, cost_report
    from perc.roofline import Efficiency

    at = Deployment(shape, card, efficiency=Efficiency(*efficiency), **options)
    return cost_report(at)


def _key(row: "CostReport", sort: Order) -> tuple:
    """Best first; what does not fit, or has no price, last."""
    from perc.hardware import accelerator

    card = accelerator(row.accelerator)
    worst = float("inf")
    price = row.usd_per_million_output_tokens
    first = {
        "together": -(row.tokens_per_s or 0),
        "alone": row.itl_alone_s or worst,
        "requests": -row.requests_at_once,
        "price": worst if price is None else price,
        "memory": -card.memory_gib,
        "bandwidth": -card.bytes_per_s,
        "name": 0,
    }[sort]
    return first, card.name


def _prices(text: str) -> dict[str, float]:
    """Prices by the card's proper name."""
    from perc.errors import InputError, check_number
    from perc.hardware import accelerator

    found = {}
    for part in filter(None, text.split(",")):
        name, _, price = part.partition("=")
        card = accelerator(name).name
        if card in found:
            raise InputError(f"--usd-per-hour has two prices of {card}; drop one.")
        try:
            found[card] = float(price)
        except ValueError:
            raise InputError(
                f"--usd-per-hour {part}: give a card and dollars, such as h100=2.49."
            ) from None
        check_number("--usd-per-hour", name, found[card])
    return found


def _links(json: bool) -> None:
    import dataclasses

    from perc.hardware import LINKS
    from perc.report.cost_tables import links_table
    from perc.report.wide import print_table, wide_console

    if json:
        print(json_module.dumps([dataclasses.asdict(way) for way in LINKS]))
        return
    table = links_table()
    print_table(wide_console(table), table)


def _print(rows: "list[CostReport]", title: str) -> None:
    from perc.report.cost_tables import hardware_table
    from perc.report.wide import print_table, wide_console

    table = hardware_table(rows, title)
    console = wide_console(table)
    print_table(console, table)
    console.print(
        "A model, not a measurement: dense peaks and bandwidths of data sheets at the "
        "given shares. Prices are the catalogue's, undated; --usd-per-hour sets yours.",
        style="dim",
        markup=False,
    )
