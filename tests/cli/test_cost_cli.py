"""`perc cost` and `perc hardware` as a person runs them."""

import json
import re
from pathlib import Path

import pytest

from perc.hardware import ACCELERATORS, LINKS

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def figures(said):
    assert said.code == 0, said.err
    return json.loads(said.out)


def test_the_table_speaks_a_server_engineers_words(perc):
    said = perc("cost", "llama-3.1-70b", "h100", "--tp", 4, "--context", 32768)
    assert said.code == 0
    for words in (
        "llama-3.1-70b on 4 x h100-sxm",
        "KV cache of a token 81,920 B fp16, each GPU",
        "KV cache of 32,768 tokens 2.5 GiB",
        "requests at once 15",
        "prefill, TTFT alone 3.41 s compute-bound",
        "decode of 15, ITL 29 ms memory-bound",
        "a million answer tokens $5.36",
        "A model, not a measurement",
        "meta-llama/Llama-3.1-70B",
    ):
        assert words in said.words, words
    assert max(map(len, said.out.splitlines())) <= 80


def test_a_model_that_does_not_fit_says_so(perc):
    said = perc("cost", "llama-3.1-70b", "h100")
    assert said.code == 0
    assert "requests at once 0" in said.words and "TTFT" not in said.words
    assert "It does not fit: 131 GiB of weights" in said.words
    assert "The least that holds one is --tp 2." in said.words
    found = figures(perc("cost", "llama-3.1-70b", "h100", "--json"))
    assert found["requests_at_once"] == 0 and found["prefill_s"] is None
    assert found["least_tp"] == 2


def test_json_has_the_figures(perc):
    found = figures(perc("cost", "llama-3.1-8b", "h100", "--json"))
    assert found["kv_token_bytes"] == 131_072
    assert found["parameters"] == 8_030_261_248
    assert found["efficiency"] == {"mfu": 0.5, "mbu": 0.8, "overhead_s": 0.0}
    assert found["tokens_per_s"] == pytest.approx(found["batch"] / found["itl_s"])


@pytest.mark.parametrize(
    "flags, field",
    [
        (("--tp", 2), "weights_gib"),
        (("--context", 100), "kv_request_gib"),
        (("--kv", "int8"), "kv_token_bytes"),
        (("--weights", "int4"), "weights_gib"),
        (("--context", 8190, "--block", 4096), "kv_budget_gib"),
        (("--utilisation", 0.6), "requests_at_once"),
        (("--activations", 20), "requests_at_once"),
        (("--batch", 2), "itl_s"),
        (("--mfu", 0.25), "prefill_s"),
        (("--mbu", 0.4), "itl_s"),
        (("--overhead", 0.01), "itl_s"),
        (("--host-link", "nvme5"), "reload_s"),
        (("--usd-per-hour", 9), "usd_per_million_output_tokens"),
        (("--busy", 0.3), "usd_per_million_output_tokens"),
    ],
)
def test_every_flag_changes_a_figure(perc, flags, field):
    base = figures(perc("cost", "llama-3.1-8b", "h100", "--json"))
    found = figures(perc("cost", "llama-3.1-8b", "h100", "--json", *flags))
    if "--block" in flags:
        assert found != base
    else:
        assert found[field] != base[field]


def test_a_price_that_nobody_knows(perc):
    said = perc("cost", "llama-3.1-8b", "mi300x")
    assert "price unknown give --usd-per-hour" in said.words
    found = figures(perc("cost", "llama-3.1-8b", "mi300x", "--json"))
    assert found["usd_per_hour"] is None


def test_a_config_instead_of_a_name(perc, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG))
    found = figures(perc("cost", "h100", "--config", path, "--json"))
    known = figures(perc("cost", "llama-3.1-8b", "h100", "--json"))
    assert {**found, "model": ""} == {**known, "model": ""}
    named = figures(perc("cost", "mine", "h100", "--config", path, "--json"))
    assert named["model"] == "mine"


def test_calibration_shows_its_residuals(perc, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(
        "kind,tokens,batch,seconds\n"
        "prefill,4096,1,0.12\nprefill,8192,1,0.26\ndecode,4096,1,0.0075\n"
        "decode,4096,64,0.022\n"
    )
    said = perc("cost", "llama-3.1-8b", "h100", "--context", 512, "--calibrate", path)
    assert said.code == 0 and "off by" in said.words
    assert "prefill 4,096 1 120 ms" in said.words
    words = ("cost", "llama-3.1-8b", "h100", "--calibrate", path, "--json")
    found = figures(perc(*words))
    assert max(map(abs, found["residuals"])) < 0.2
    assert 0.5 < found["efficiency"]["mfu"] <= 1
    assert found["determined"] == ["mfu", "mbu", "overhead_s"]
    path.write_text("kind,tokens,batch,seconds\ndecode,4096,1,0.0075\n")
    said = perc("cost", "llama-3.1-8b", "h100", "--calibrate", path)
    assert "These points say nothing about mfu" in said.words
    given = figures(perc(*words, "--mfu", "0.3"))["efficiency"]
    assert given["mfu"] == 0.3
    assert "The fit is off" not in said.words
    path.write_text("kind,tokens,batch,seconds\ndecode,4096,1,0.0000001\n")
    said = perc("cost", "llama-3.1-8b", "h100", "--calibrate", path)
    assert "The fit is off by up to" in said.words and "in seconds" in said.words


@pytest.mark.parametrize(
    "words, answer",
    [
        (("llama-3.1-9b", "h100"), "llama-3.1-8b, llama-3.1-70b"),
        (("llama-3.1-8b", "h101"), "Near: h"),
        (("llama-3.1-8b",), "which accelerator?"),
        (("llama-3.1-8b", "h100", "--tp", 3), "give one of 1, 2, 4, 8"),
        (("llama-3.1-8b", "h100", "--tp", 0), "tensor parallelism is 0"),
        (("llama-3.1-8b", "h100", "--kv", "fp7"), "there are fp16"),
        (("llama-3.1-8b", "h100", "--weights", "fp7"), "there are bf16"),
        (("llama-3.1-8b", "h100", "--context", 0), "context is 0"),
        (("llama-3.1-8b", "h100", "--batch", 999), "does not fit; at most"),
        (("llama-3.1-8b", "h100", "--utilisation", 1.5), "utilisation is 1.5"),
        (("llama-3.1-8b", "h100", "--mfu", 0), "mfu is 0"),
        (("llama-3.1-8b", "h100", "--mbu", "nan"), "mbu is nan"),
        (("llama-3.1-8b", "h100", "--busy", 2), "busy is 2"),
        (("llama-3.1-8b", "h100", "--host-link", "usb"), "no link 'usb'"),
        (("llama-3.1-8b", "h100", "--calibrate", "gone.csv"), "gone.csv"),
        (("h100", "--config", "gone.json"), "gone.json"),
        (("--config", "c.json"), "--config c.json: which accelerator? Give one"),
        ((), "which model, and which accelerator?"),
    ],
)
def test_bad_input(refused, words, answer):
    assert answer in refused("cost", *words).words


def test_the_scorecard(perc):
    said = perc("hardware", "--context", 2048)
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    for card in ACCELERATORS:
        assert card.name in said.out
    assert "llama-3.1-8b, requests of 2,048 tokens, 1 of each card" in said.words


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "qwen2.5-0.5b"),
        ("--model", "llama-3-8b", "--context", 2048, "--mfu", 1, "--mbu", 1),
    ],
)
def test_no_digit_of_the_scorecard_is_lost_in_80_columns(perc, words):
    said = perc("hardware", *words)
    assert "…" not in said.out and " \n" not in said.out.split("at once: ")[0]
    for row in figures(perc("hardware", *words, "--json"))["rows"]:
        if row["itl_alone_s"] is not None:
            assert f"{1 / row['itl_alone_s']:,.1f}" in said.out


def test_the_scorecard_of_the_reference(perc):
    """Section 2.12, corrected, at full peaks, full memory and no reserve."""
    ideal = ("--mfu", 1, "--mbu", 1, "--utilisation", 1, "--activations", 0)
    words = ("hardware", "--model", "llama-3-8b", "--context", 2048, *ideal, "--json")
    rows = {row["accelerator"]: row for row in figures(perc(*words))["rows"]}
    assert rows["h200"]["requests_at_once"] == 504
    assert rows["h200"]["tokens_per_s"] == pytest.approx(15_984, rel=1e-4)
    assert 1 / rows["l4"]["itl_alone_s"] == pytest.approx(18.37, rel=1e-3)


@pytest.mark.parametrize(
    "sort, field, sign",
    [
        ("together", "tokens_per_s", -1),
        ("alone", "itl_alone_s", 1),
        ("requests", "requests_at_once", -1),
        ("memory", "memory_gib", -1),
        ("price", "usd_per_million_output_tokens", 1),
        ("name", "accelerator", 1),
    ],
)
def test_the_scorecard_is_sorted_by_what_one_asks_for(perc, sort, field, sign):
    rows = figures(perc("hardware", "--sort", sort, "--json"))["rows"]
    values = [row[field] for row in rows if row[field] is not None]
    assert len(rows) == len(ACCELERATORS)
    assert values == sorted(values, reverse=sign < 0)


def test_cards_that_a_model_does_not_fit_come_last(perc):
    rows = figures(perc("hardware", "--model", "llama-3.1-70b", "--json"))["rows"]
    fits = [row["requests_at_once"] > 0 for row in rows]
    assert fits == sorted(fits, reverse=True) and not all(fits) and any(fits)


def test_prices_of_ones_own(perc):
    words = ("hardware", "--sort", "price", "--json", "--usd-per-hour")
    rows = figures(perc(*words, "l4=0.001,h100=100"))["rows"]
    assert rows[0]["accelerator"] == "l4"
    prices = {row["accelerator"]: row["usd_per_hour"] for row in rows}
    assert prices["h100-sxm"] == 100


def test_the_links(perc):
    said = perc("hardware", "--links")
    assert said.code == 0 and all(way.name in said.out for way in LINKS)
    assert len(figures(perc("hardware", "--links", "--json"))) == len(LINKS)


@pytest.mark.parametrize(
    "words, answer",
    [
        (("--model", "gpt-5"), "no model 'gpt-5'"),
        (("--usd-per-hour", "h100"), "such as h100=2.49"),
        (("--usd-per-hour", "h101=1"), "no accelerator 'h101'"),
        (("--usd-per-hour", "h100=1,h100-sxm=2"), "two prices of h100-sxm"),
        (("--usd-per-hour", "h100=-1"), "h100 is -1"),
        (("--sort", "colour"), "colour"),
        (("--context", 99999999999), "perc: deployment: context is 99999999999"),
        (("--kv", "fp7"), "there are fp16"),
        (("--links", "--sort", "price"), "--sort price changes nothing for --links"),
        (("--links", "--usd-per-hour", "h100=1"), "changes nothing for --links"),
    ],
)
def test_bad_input_to_the_scorecard(refused, words, answer):
    assert answer in refused("hardware", *words).words


DOCUMENT = Path(__file__).parents[2] / "docs" / "cost.md"
SHOWN = re.compile(r"```console\n\$ perc ([^\n]*)\n(.*?)\n```", re.DOTALL)


@pytest.mark.skipif(not DOCUMENT.is_file(), reason="run away from a checkout")
def test_the_document_shows_what_the_commands_print(perc):
    examples = SHOWN.findall(DOCUMENT.read_text())
    assert len(examples) >= 3
    for command, shown in examples:
        said = perc(*command.split())
        assert [line.rstrip() for line in said.out.splitlines()] == shown.split("\n")
