"""`perc cost`: what a model costs on an accelerator, in memory, time and money."""

import json as json_module
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import FlagCreatePairsOff, Positional, arg

if TYPE_CHECKING:
    from perc.deployment import Deployment
    from perc.models import ModelShape


def cost(
    model: Annotated[Positional[str | None], arg(metavar="MODEL")] = None,
    gpu: Annotated[Positional[str | None], arg(metavar="GPU")] = None,
    *,
    config: Annotated[Path | None, arg(metavar="CONFIG.JSON")] = None,
    tp: int = 1,
    context: int = 8192,
    batch: int | None = None,
    kv: str = "fp16",
    weights: str | None = None,
    block: int = 16,
    utilisation: float = 0.9,
    activations: Annotated[float | None, arg(metavar="GIB")] = None,
    mfu: float = 0.5,
    mbu: float = 0.8,
    overhead: Annotated[float, arg(metavar="SECONDS")] = 0.0,
    calibrate: Annotated[Path | None, arg(metavar="POINTS.CSV")] = None,
    host_link: Annotated[str | None, arg(metavar="LINK")] = None,
    usd_per_hour: Annotated[float | None, arg(metavar="USD")] = None,
    busy: float = 1.0,
    json: FlagCreatePairsOff[bool] = False,
) -> None:
    """Price a deployment: KV cache, requests at once, prefill, decode, dollars.

    Args:
        model: its name, such as llama-3.1-70b; with --config it may be left out.
        gpu: an accelerator, such as h100; `perc hardware` lists them.
        config: a Hugging Face config.json, or its folder, instead of a known model.
        tp: tensor parallelism, accelerators that share the model.
        context: tokens of a request, prompt and answer.
        batch: requests that decode together; by default as many as fit.
        kv: format of the cache: fp16, fp8, fp8-per-token, int8, int4.
        weights: bf16, fp8, int8, int4, mxfp4; by default as published.
        block: tokens of a block of the paged cache.
        utilisation: share of the memory that the server may use.
        activations: GiB for a step's activations; by default an estimate.
        mfu: share of the dense peak that is reached.
        mbu: share of the memory bandwidth that is reached.
        overhead: of every step.
        calibrate: measured times, columns kind,tokens,batch,seconds, where kind is
            prefill or decode; mfu, mbu and overhead are fitted to them.
        host_link: link to reload a cache over, such as pcie5, rdma-400g or nvme4.
        usd_per_hour: of one accelerator; some have one in the catalogue.
        busy: share of the hour in which the group serves.
        json: print one JSON object instead of the table.

    Raises:
        InputError: if a name is unknown or a number is not as it must be.
    """
    from perc.deployment import Deployment, cost_report
    from perc.hardware import accelerator, link
    from perc.roofline import Efficiency

    shape, card = _model_and_gpu(model, gpu, config, weights)
    at = Deployment(
        shape,
        accelerator(card),
        tp=tp,
        weights=weights,
        kv=kv,
        context_tokens=context,
        block_tokens=block,
        batch=batch,
        utilisation=utilisation,
        activations_gib=activations,
        efficiency=Efficiency(mfu, mbu, overhead),
        host=None if host_link is None else link(host_link),
        usd_per_hour=usd_per_hour,
        busy=busy,
    )
    fit = None
    if calibrate is not None:
        at, fit = _calibrated(at, calibrate)
    report = cost_report(at)
    if json:
        found = report.as_dict() | {"efficiency": at.efficiency._asdict()}
        if fit is not None:
            found["residuals"] = fit[1].residuals.tolist()
            found["determined"] = list(fit[1].determined)
        print(json_module.dumps(found, allow_nan=False))
        return
    _print(report, at, fit)


def _model_and_gpu(
    model: str | None, gpu: str | None, config: Path | None, weights: str | None
) -> "tuple[ModelShape, str]":
    """With --config a single name is the accelerator."""
    from perc.errors import InputError
    from perc.model_shapes import model as named
    from perc.models_config import read_config

    remedy = "`perc hardware` lists accelerators."
    if config is not None:
        if model is None:
            raise InputError(
                f"perc cost --config {config}: which accelerator? Give one, such as "
                f"`perc cost h100 --config {config}`; {remedy}"
            )
        shape = read_config(config, name=model if gpu else None, weights=weights)
        return shape, gpu or model
    if model is None:
        raise InputError(
            "perc cost: which model, and which accelerator? Give both, such as `perc "
            f"cost llama-3.1-8b h100`; {remedy}"
        )
    if gpu is None:
        raise InputError(
            f"perc cost {model}: which accelerator? Give one, such as `perc cost "
            f"{model} h100`; {remedy}"
        )
    return named(model), gpu


def _calibrated(at: "Deployment", path: Path):
    """The deployment at its fitted efficiency, and the points with the fit."""
    from perc.calibration import calibrate, read_points
    from perc.roofline import Efficiency

    points = read_points(path)
    ideal = replace(at, efficiency=Efficiency(1.0, 1.0, 0.0)).roofline()
    fit = calibrate(ideal, points, default=at.efficiency)
    return replace(at, efficiency=fit.efficiency), (points, fit)


def _print(report, at: "Deployment", fit) -> None:
    from perc.calibration import POOR
    from perc.report.cost_tables import calibration_table, cost_sentences, cost_table
    from perc.report.wide import print_table, wide_console

    table = cost_table(report)
    console = wide_console(table)
    if fit is not None:
        points, found = fit
        fitted = calibration_table(points, found)
        console = wide_console(table, fitted)
        print_table(console, fitted)
        if found.worst > POOR:
            console.print(
                f"The fit is off by up to {found.worst:,.0%}: check that the points "
                "are of this model and card, and in seconds.",
                markup=False,
            )
        free = set(found.efficiency._fields) - set(found.determined)
        if free:
            console.print(
                f"These points say nothing about {', '.join(sorted(free))}.",
                markup=False,
            )
    print_table(console, table)
    for sentence in cost_sentences(report):
        console.print(sentence, markup=False)
    reached = at.efficiency
    console.print(
        f"A model, not a measurement: {reached.mfu:.3g} of the dense peak, "
        f"{reached.mbu:.3g} of the bandwidth, {reached.overhead_s:.3g} s overhead a "
        f"step. Shape: {at.model.source}. Card: {at.card.source}.",
        style="dim",
        markup=False,
    )
