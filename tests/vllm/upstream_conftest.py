"""Stands in for vLLM's own tests/conftest.py, which wants models and a GPU.

`.ci/vllm` copies it there. With PERC_POLICY set the tests run on perc's queue.
"""

import json
import os

import pytest

CONFIGS = {  # models of which the tests read the shape only
    "facebook/opt-125m": {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "hidden_size": 768,
        "ffn_dim": 3072,
        "num_attention_heads": 12,
        "num_hidden_layers": 12,
        "max_position_embeddings": 2048,
        "vocab_size": 50272,
        "word_embed_proj_dim": 768,
        "torch_dtype": "float16",
    },
    "facebook/opt-350m": {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "hidden_size": 1024,
        "ffn_dim": 4096,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "max_position_embeddings": 2048,
        "vocab_size": 50272,
        "word_embed_proj_dim": 512,
        "torch_dtype": "float16",
    },
    "Qwen/Qwen3-0.6B": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_attention_heads": 16,
        "num_hidden_layers": 28,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 40960,
        "vocab_size": 151936,
        "torch_dtype": "bfloat16",
    },
    "Qwen/Qwen1.5-7B": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "vocab_size": 151936,
        "torch_dtype": "bfloat16",
    },
}


def pytest_configure(config):
    folder = config.rootpath / "models"
    redirect = {}
    for name, shape in CONFIGS.items():
        place = folder / name.replace("/", "--")
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(shape))
        redirect[name] = str(place)
    table = folder / "redirect.json"
    table.write_text(json.dumps(redirect))
    os.environ["VLLM_MODEL_REDIRECT_PATH"] = str(table)
    if os.environ.get("PERC_POLICY"):
        from vllm.v1.core import block_pool

        from perc.bridges.vllm_plugin import register

        own = block_pool.FreeKVCacheBlockQueue
        register()
        assert block_pool.FreeKVCacheBlockQueue is not own, "perc is not in place"


@pytest.fixture
def default_vllm_config():
    from vllm.config import VllmConfig, set_current_vllm_config

    config = VllmConfig()
    with set_current_vllm_config(config):
        yield config


@pytest.fixture
def caplog_vllm(caplog, monkeypatch):
    import logging

    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level(logging.INFO):
        yield caplog
