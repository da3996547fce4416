"""Shapes of models: parameters, KV cache, concurrency; and config.json."""

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perc.errors import InputError
from perc.kv_memory import (
    GIB,
    KV_FORMATS,
    WEIGHT_FORMATS,
    activation_bytes,
    block_bytes,
    concurrency,
    expert_bytes,
    kv_budget_bytes,
    kv_request_bytes,
    kv_token_bytes,
    weight_bytes,
)
from perc.model_shapes import MODELS, model
from perc.models import Experts, Latent, ModelShape
from perc.models_config import read_config
from tests.oracles import roofline as oracle

TOY = ModelShape("toy", 5, 64, 8, 4, 8, 128, 1000, windows=(7, 0))
WINDOWED = [m for m in MODELS if m.windows]


def shapes():
    """Small dense models with any grouping and any pattern of windows."""
    window = st.integers(0, 40)
    return st.builds(
        lambda layers, kv, group, head, windows: ModelShape(
            "drawn", layers, 32, kv * group, kv, head, 64, 100, windows=tuple(windows)
        ),
        st.integers(1, 6),
        st.sampled_from([1, 2, 4]),
        st.sampled_from([1, 2, 4]),
        st.integers(1, 16),
        st.lists(window, max_size=3),
    )


def test_catalogue_is_large_and_names_its_sources():
    assert len(MODELS) >= 25
    assert len({shape.name for shape in MODELS}) == len(MODELS)
    assert all("/" in shape.source and shape.published for shape in MODELS)


@pytest.mark.parametrize("shape", MODELS, ids=lambda shape: shape.name)
def test_parameters_come_out_as_published(shape):
    assert shape.parameters == pytest.approx(shape.published, rel=0.015)


@pytest.mark.parametrize(
    "shape", [m for m in MODELS if m.experts], ids=lambda shape: shape.name
)
def test_active_parameters_come_out_as_published(shape):
    """Authors count the input embedding or leave it out, and round to a billion."""
    embedding = shape.vocabulary * shape.hidden
    counts = shape.active_parameters, shape.active_parameters - embedding
    rounding = max(0.03 * shape.published_active, 0.85e9)
    assert min(abs(c - shape.published_active) for c in counts) <= rounding
    assert shape.active_parameters < shape.parameters


@pytest.mark.parametrize(
    "name, parameters",  # as safetensors' metadata on huggingface.co counts them
    [
        ("llama-2-7b", 6_738_415_616),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-3.1-70b", 70_553_706_496),
        ("llama-3.2-1b", 1_235_814_400),
        ("mistral-7b-v0.1", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704),
    ],
)
def test_models_without_biases_come_out_exactly(name, parameters):
    assert model(name).parameters == parameters


@pytest.mark.parametrize(
    "name, kv_bytes",
    [
        ("llama-2-7b", 524_288),
        ("llama-2-13b", 819_200),
        ("llama-2-70b", 327_680),
        ("llama-3-8b", 131_072),
        ("llama-3-70b", 327_680),
        ("llama-3.1-8b", 131_072),
        ("mistral-7b", 131_072),
        ("mixtral-8x7b", 131_072),
        ("qwen2.5-1.5b", 28_672),
        ("deepseek-v3", 70_272),
        ("deepseek-r1", 70_272),
        ("deepseek-v2", 69_120),
        ("kimi-k2", 70_272),
    ],
)
def test_kv_bytes_of_a_token(name, kv_bytes):
    """Reference values of script 5 and section 2.12; query heads would fail each."""
    assert kv_token_bytes(model(name)) == kv_bytes
    assert kv_token_bytes(model(name), "fp8") == kv_bytes / 2


@pytest.mark.parametrize(
    "name", "llama2_7b llama2_13b llama2_70b llama3_8b llama3_70b mistral_7b".split()
)
def test_names_of_the_reference_catalogue_are_known(name):
    assert model(name).name.startswith(("llama-", "mistral-"))


def test_names_are_found_however_they_are_written():
    assert model("meta-llama/Llama-3.1-8B-Instruct") is model("LLAMA_3.1_8b")
    assert model("google/gemma-3-27b-it") is model("gemma-3-27b")
    with pytest.raises(InputError, match="Near: .*llama-3.1-8b"):
        model("llama-3.1-9b")
    with pytest.raises(InputError, match="There are deepseek"):
        model("%%%")


def test_concurrency_of_the_reference():
    """Script 5: 4,096 tokens in 0.9 * 80e9 bytes, 2 bytes a parameter."""
    names = "llama-2-7b llama-2-13b llama-3-8b llama-3-70b mistral-7b qwen2.5-1.5b"
    parameters = np.array([7, 13, 8.03, 70.6, 7.24, 1.54]) * 1e9
    requests = [4096 * kv_token_bytes(model(name)) for name in names.split()]
    found = concurrency(kv_budget_bytes(80e9, 2 * parameters), requests)
    assert found.tolist() == [27, 13, 104, 0, 107, 586]


@pytest.mark.parametrize(
    "name, parameters, at_once",
    [
        ("llama-2-7b", 6.74e9, [45, 109, 269]),
        ("llama-2-13b", 13.02e9, [0, 40, 142]),
        ("llama-3-8b", 8.03e9, [144, 400, 1040]),
        ("mistral-7b", 7.24e9, [168, 424, 1064]),
        ("qwen2.5-1.5b", 1.54e9, [1545, 2715, 5641]),
        ("llama-3-70b", 70.6e9, [0, 0, 0]),
        ("mixtral-8x7b", 46.7e9, [0, 0, 0]),
    ],
)
def test_concurrency_without_reserve(name, parameters, at_once):
    """Section 2.12, [P]: 512 tokens on 24, 40, 80 GiB; a model that does not fit: 0."""
    memory = np.array([24, 40, 80]) * GIB
    budget = kv_budget_bytes(memory, 2 * parameters, utilisation=1.0)
    request = kv_request_bytes(model(name), 512)
    assert concurrency(budget, request).tolist() == at_once


def test_concurrency_of_cachepilots_budget():
    """Section 2.12, [V]: 7e9 parameters, 524,288 B, 512 tokens."""
    memory = np.array([80, 40, 24]) * GIB
    budget = kv_budget_bytes(memory, 14e9, utilisation=1.0)
    assert concurrency(budget, 512 * 524_288).tolist() == [267, 107, 43]
    assert concurrency(budget, 512 * 262_144).tolist() == [535, 215, 87]


def test_weights_of_quantised_checkpoints():
    """gpt-oss model card, table 1: checkpoints of 12.8 and 60.8 GiB."""
    assert weight_bytes(model("gpt-oss-20b")) / GIB == pytest.approx(12.8, abs=0.06)
    assert weight_bytes(model("gpt-oss-120b")) / GIB == pytest.approx(60.8, abs=0.2)
    shape = model("llama-3.1-8b")
    assert weight_bytes(shape) == 2 * shape.parameters
    kept = 2 * shape.embedding_parameters
    small = weight_bytes(shape, "fp8") - kept
    assert small == shape.parameters - shape.embedding_parameters


def test_latents_are_on_every_rank_and_heads_are_shared():
    shape = model("deepseek-v3")
    assert kv_token_bytes(shape, tp=8) == kv_token_bytes(shape)
    grouped = model("llama-3.1-70b")  # 8 KV heads, 64 query heads
    whole = kv_token_bytes(grouped)
    assert [kv_token_bytes(grouped, tp=t) * t / whole for t in (1, 2, 8, 16, 64)] == [
        1,
        1,
        1,
        2,
        8,
    ]
    for tp in (3, 128, 0):
        with pytest.raises(InputError):
            kv_token_bytes(grouped, tp=tp)


@given(shapes(), st.sampled_from([1, 2, 4]), st.integers(0, 50))
def test_ranks_together_hold_the_whole_cache(shape, tp, tokens):
    if shape.kv_heads % tp:
        tp = 1
    together = tp * kv_request_bytes(shape, tokens, tp=tp)
    assert together == kv_request_bytes(shape, tokens)


@given(shapes(), st.integers(0, 50))
def test_cache_is_counted_token_by_token(shape, tokens):
    assert kv_request_bytes(shape, tokens) == oracle.kv_bytes(shape, tokens)


@given(shapes(), st.lists(st.integers(0, 60), min_size=2), st.integers(1, 20))
def test_cache_grows_and_blocks_round_up(shape, lengths, block):
    sizes = kv_request_bytes(shape, sorted(lengths))
    blocks = kv_request_bytes(shape, sorted(lengths), block_tokens=block)
    assert (np.diff(sizes) >= 0).all() and (np.diff(blocks) >= 0).all()
    waste = blocks - sizes
    assert (waste >= 0).all() and (waste < block_bytes(shape, block) + 1e-9).all()


@pytest.mark.parametrize("shape", WINDOWED, ids=lambda shape: shape.name)
def test_windows_bound_the_cache(shape):
    """A published fact: most layers of these models keep a window and no more."""
    full = shape.window_layers.get(math.inf, 0)
    grown = kv_request_bytes(shape, 200_000) - kv_request_bytes(shape, 100_000)
    each = kv_token_bytes(shape) / shape.layers
    assert grown == full * each * 100_000
    assert sum(shape.window_layers.values()) == shape.layers


def test_layers_with_windows_are_counted():
    assert model("gemma-3-27b").window_layers == {1024.0: 52, math.inf: 10}
    assert model("gpt-oss-120b").window_layers == {128.0: 18, math.inf: 18}
    assert model("mistral-7b-v0.1").window_layers == {4096.0: 32}
    assert TOY.window_layers == {7.0: 3, math.inf: 2}


@given(st.sampled_from(sorted(KV_FORMATS)), st.integers(1, 300))
def test_scales_are_counted(name, head):
    kv = KV_FORMATS[name]
    assert kv.vector_bytes(head) == head * kv.bits / 8 + kv.scale_bytes
    assert (kv.scale_bytes > 0) == (name in ("int8", "int4", "fp8-per-token"))


def test_formats_shrink_in_order():
    shape = model("llama-3.1-8b")
    sizes = [kv_token_bytes(shape, name) for name in ("fp16", "int8", "fp8", "int4")]
    assert sizes == [131_072, 67_584, 65_536, 34_816]
    assert block_bytes(shape, 16, "fp8") == 2**20


@given(
    st.floats(0, 1e13), st.floats(0, 1e13), st.floats(0.01, 1.0), st.integers(1, 10**9)
)
def test_budget_is_never_negative_nor_overspent(memory, weights, share, request):
    budget = float(kv_budget_bytes(memory, weights, utilisation=share))
    at_once = int(concurrency(budget, request))
    assert budget >= 0 and (budget > 0) == (memory * share > weights)
    assert at_once * request <= budget * (1 + 1e-9)
    assert (at_once + 1) * request > budget * (1 - 1e-9)


def test_activations_grow_with_the_batch_and_shrink_with_ranks():
    shape = model("llama-3.1-70b")
    one = activation_bytes(shape, 8192)
    assert activation_bytes(shape, 16384) == 2 * one
    assert activation_bytes(shape, 1, tp=8) == 2 * (2 * 8192 + 3 * 28672 / 8)
    assert activation_bytes(shape, 0) == 0


def test_experts_are_most_of_a_mixture():
    shape = model("deepseek-v3")
    assert 0.95 < expert_bytes(shape) / weight_bytes(shape) < 1
    assert expert_bytes(model("llama-3-8b")) == 0


@pytest.mark.parametrize(
    "change, word",
    [
        ({"layers": 0}, "layers"),
        ({"kv_heads": 3}, "query heads of a KV head are . / 3, must be a whole"),
        ({"kv_heads": 16}, "kv_heads"),
        ({"mlp": 0}, "mlp"),
        ({"windows": (-1,)}, "window"),
        ({"hidden": 2.5}, "hidden"),
        ({"experts": Experts(4, 8, 16, layers=2)}, "active"),
        ({"experts": Experts(4, 2, 16, layers=9)}, "layers"),
    ],
)
def test_shapes_that_cannot_be(change, word):
    with pytest.raises(InputError, match=word):
        dataclasses.replace(TOY, **change)


@pytest.mark.parametrize(
    "call",
    [
        lambda: kv_token_bytes(TOY, "fp7"),
        lambda: weight_bytes(TOY, "fp7"),
        lambda: weight_bytes(TOY, "mxfp4"),
        lambda: kv_request_bytes(TOY, 5, block_tokens=0),
        lambda: kv_budget_bytes(1e9, 0, utilisation=1.1),
        lambda: kv_budget_bytes(1e9, -1),
        lambda: kv_budget_bytes(1e9, 0, activations=-1),
        lambda: concurrency(1e9, 0),
    ],
)
def test_senseless_memory_is_refused(call):
    with pytest.raises(InputError):
        call()


def test_formats_named_in_the_error():
    with pytest.raises(InputError, match="fp8-per-token"):
        kv_token_bytes(TOY, "int3")
    assert set(WEIGHT_FORMATS) >= {"bf16", "fp8", "int8", "int4", "mxfp4"}


# config.json: the keys that repositories publish, without those that say nothing here.
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "quantization_config": {"quant_method": "fp8"},
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "vocab_size": 201088,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN_MOE = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
GEMMA = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "intermediate_size": 21504,
        "sliding_window": 1024,
        "vocab_size": 262144,
    },
}
SCOUT = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text",
        "num_hidden_layers": 48,
        "hidden_size": 5120,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "interleave_moe_layer_step": 2,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "attention_chunk_size": 8192,
        "vocab_size": 202048,
    },
}


@pytest.fixture
def write(tmp_path):
    def written(keys, **changes):
        path = tmp_path / "config.json"
        kept = {k: v for k, v in {**keys, **changes}.items() if v != "absent"}
        path.write_text(json.dumps(kept))
        return path

    return written


@pytest.mark.parametrize(
    "keys, name",
    [
        (LLAMA, "llama-3.1-8b"),
        (DEEPSEEK, "deepseek-v3"),
        (GPT_OSS, "gpt-oss-20b"),
        (QWEN_MOE, "qwen3-30b-a3b"),
        (GEMMA, "gemma-3-27b"),
        (SCOUT, "llama-4-maverick"),
    ],
)
def test_published_configs_read_as_the_catalogue(write, keys, name):
    read, known = read_config(write(keys)), model(name)
    assert read.window_layers == known.window_layers
    same = {"name": known.name, "source": known.source, "windows": known.windows}
    same |= {"published": known.published, "published_active": known.published_active}
    assert dataclasses.replace(read, **same) == known


def test_a_folder_will_do_and_names_the_model(write):
    path = write(LLAMA)
    assert read_config(path.parent) == read_config(path)
    assert read_config(path).name == path.parent.name
    assert read_config(path, name="mine").name == "mine"


def test_absent_keys_mean_what_transformers_makes_of_them(write):
    old = read_config(write(LLAMA, num_key_value_heads="absent", head_dim=None))
    assert (old.kv_heads, old.head_size) == (32, 128)
    mistral = dict(LLAMA, model_type="mistral")
    read = read_config(write(mistral, num_key_value_heads="absent"))
    assert (read.kv_heads, read.window_layers) == (8, {4096.0: 32})
    read = read_config(write(mistral, num_key_value_heads=None, sliding_window=None))
    assert (read.kv_heads, read.windows) == (32, ())
    glm = read_config(write(LLAMA, model_type="glm4", num_key_value_heads="absent"))
    assert glm.kv_heads == 2
    oss = dict.fromkeys(("layer_types", "sliding_window", "head_dim"), "absent")
    read = read_config(write(GPT_OSS, **oss))
    assert (read.windows[:3], read.head_size) == ((128, 0, 128), 64)
    lite = read_config(write(DEEPSEEK, q_lora_rank=None, n_shared_experts=None))
    assert lite.latent == Latent(512, 64, 128, 128, query_rank=0)
    assert lite.experts is not None and lite.experts.shared_width == 0
    assert read_config(write(GEMMA)).tied and not read_config(write(LLAMA)).tied


def test_the_small_gemma_is_read_as_it_is_published(write):
    """Four billion parameters in four keys; the rest are the class's defaults."""
    text = {"model_type": "gemma3_text", "num_hidden_layers": 34, "hidden_size": 2560}
    text |= {"intermediate_size": 10240, "sliding_window": 1024}
    read = read_config(write({"model_type": "gemma3", "text_config": text}))
    assert (read.query_heads, read.kv_heads, read.head_size) == (8, 4, 256)
    assert read.window_layers == {1024.0: 29, math.inf: 5}
    assert read.parameters == pytest.approx(3.88e9, rel=0.01)


def test_newer_files_of_a_mixture_name_its_experts_otherwise(write):
    moved = dict(QWEN_MOE, num_experts="absent", num_local_experts=128)
    assert read_config(write(moved)) == read_config(write(QWEN_MOE))


def test_windows_that_are_switched_off_are_none(write):
    qwen = dict(LLAMA, model_type="qwen2", sliding_window=4096, max_window_layers=28)
    assert read_config(write(qwen)).windows == ()
    used = read_config(write(qwen, use_sliding_window=True))
    assert used.window_layers == {4096.0: 4, math.inf: 28}
    mistral = read_config(write(LLAMA, model_type="mistral", sliding_window=4096))
    assert mistral.window_layers == {4096.0: 32}
    alternate = read_config(write(LLAMA, model_type="gemma2", sliding_window=4096))
    assert alternate.windows[:3] == (4096, 0, 4096)


@pytest.mark.parametrize(
    "quantised, weights",
    [
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "fp8"}, "fp8"),
        (None, "bf16"),
    ],
)
def test_quantised_weights(write, quantised, weights):
    assert read_config(write(LLAMA, quantization_config=quantised)).weights == weights


def test_dense_layers_of_a_mixture(write):
    read = read_config(write(QWEN_MOE, mlp_only_layers=[0, 1]))
    assert read.experts is not None
    assert (read.experts.layers, read.mlp) == (46, 6144)
    assert read_config(write(QWEN_MOE, decoder_sparse_step=2)).experts == Experts(
        128, 8, 768, layers=24
    )


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"model_type": "mamba2"}, "architecture 'mamba2' is not known"),
        ({"model_type": "deepseek_v32"}, "may cache something else"),
        ({"model_type": "absent"}, "architecture 'None'"),
        ({"num_hidden_layers": "absent"}, "key 'num_hidden_layers' is missing"),
        ({"vocab_size": None}, "key 'vocab_size' is missing"),
        ({"hidden_size": "4096"}, "key 'hidden_size' is '4096'"),
        ({"num_attention_heads": True}, "'num_attention_heads' is True"),
        ({"num_key_value_heads": -8}, "'num_key_value_heads' is -8"),
        ({"num_key_value_heads": 5}, "query heads of a KV head"),
        ({"tie_word_embeddings": "no"}, "'tie_word_embeddings' is 'no'"),
        ({"layer_types": ["linear_attention"] * 32}, "has 'linear_attention'"),
        ({"layer_types": ["full_attention"]}, "no list of 32"),
        ({"quantization_config": {"quant_method": "quark"}}, "--weights int4"),
        ({"text_config": 5}, "'text_config' is no object"),
        ({"num_hidden_layers": 10**9}, "is 1000000000. Give a whole number from 1 to"),
        ({"hidden_size": 10**30}, "from 1 to 1,000,000,000"),
        ({"quantization_config": {"quant_method": ["fp8"]}}, "--weights int4"),
        ({"model_type": "qwen3_moe", "mlp_only_layers": 5}, "is no list"),
    ],
)
def test_configs_that_cannot_be_read(write, changes, words):
    path = write(LLAMA, **changes)
    with pytest.raises(InputError, match=words) as found:
        read_config(path, name="mine")
    assert str(path) in str(found.value) or "mine" in str(found.value)


def test_weights_that_are_given_need_no_reading(write):
    path = write(LLAMA, quantization_config={"quant_method": "quark"})
    assert read_config(path, weights="int8").weights == "int8"


def test_quantisation_in_a_second_file_is_not_overlooked(write):
    path = write(LLAMA)
    (path.parent / "hf_quant_config.json").write_text("{}")
    with pytest.raises(InputError, match="hf_quant_config.json"):
        read_config(path)


def test_files_that_are_no_config(tmp_path):
    path = tmp_path / "config.json"
    huge = '{"a": ' + "9" * 5_000 + "}"
    for text in ("", "{", "[]", "\x00", "[" * 100_000, huge):
        path.write_text(text)
        with pytest.raises(InputError, match="config.json"):
            read_config(path)
    with pytest.raises(InputError, match="gone"):
        read_config(tmp_path / "gone.json")
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="config.json"):
        read_config(path)
