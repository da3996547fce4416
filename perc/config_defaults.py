"""What absent keys of a `config.json` mean, by architecture.

The defaults of transformers' configuration classes (5.19), where they are not what is
computed of the other keys: KV heads as many as query heads, a head size of hidden size
by heads, no window. A key that is there and null has no default.
"""

_DEEPSEEK_3 = {"q_lora_rank": 1536, "n_shared_experts": 1, "first_k_dense_replace": 3}
_GEMMA = {
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
}
DEFAULTS: dict[str, dict[str, int]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": {"num_key_value_heads": 8},
    "qwen2": {"num_key_value_heads": 32, "max_window_layers": 28},
    "qwen3": {"num_key_value_heads": 32, "head_dim": 128, "max_window_layers": 28},
    "qwen2_moe": {"num_key_value_heads": 16, "max_window_layers": 28},
    "qwen3_moe": {"num_key_value_heads": 4},
    "gemma2": {**_GEMMA, "vocab_size": 256_000},
    "gemma3_text": {**_GEMMA, "vocab_size": 262_208},
    "glm4": {"num_key_value_heads": 2, "head_dim": 128},
    "glm4_moe": {
        "num_key_value_heads": 8,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
    },
    "smollm3": {"num_key_value_heads": 4},
    "gpt_oss": {"num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128},
    "minimax_m2": {"num_key_value_heads": 8, "head_dim": 128},
    "llama4_text": {
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
    },
    "deepseek_v2": {"q_lora_rank": 1536, "n_shared_experts": 2},
    "deepseek_v3": _DEEPSEEK_3,
    "kimi_k2": _DEEPSEEK_3,
}
