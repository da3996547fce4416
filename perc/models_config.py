"""Reads a model's shape from its Hugging Face `config.json`.

Each architecture spells the same facts in its own way; what is written here is how
transformers' configuration classes read them. An architecture that is not listed is
refused: its cache may be something else altogether, such as the state of a linear
attention or the keys of an indexer, and a wrong size is worse than none.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perc.config_defaults import DEFAULTS
from perc.errors import InputError
from perc.models import Experts, Latent, ModelShape

LATENT = ("deepseek_v2", "deepseek_v3", "kimi_k2")
TIED = ("gemma2", "gemma3_text", "smollm3")  # where the key's default is true
# Where use_sliding_window is false by default.
SWITCHED = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "smollm3")
# The last layer of so many sees all.
WINDOW_PERIOD = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2}
MOST_LAYERS, MOST = 10_000, 10**9  # of any number
LLAMA_4_PERIOD = 4
FULL, SLIDING = ("full_attention",), ("sliding_attention", "chunked_attention")
# Servers load float32 weights at 16 bits.
OF_DTYPE = {"bfloat16": "bf16", "float16": "fp16", "float32": "bf16"}
REMEDY = "Give the format of the weights yourself, such as --weights int4."
OF_METHOD = {
    ("fp8", None): "fp8",
    ("mxfp4", None): "mxfp4",
    ("awq", 4): "int4",
    ("gptq", 4): "int4",
    ("gptq", 8): "int8",
}


class _Config:
    """A configuration's keys; a missing or senseless one is an `InputError`."""

    def __init__(self, path: Path, keys: dict[str, Any], whole: dict[str, Any]) -> None:
        self.path, self.keys, self.whole = path, keys, whole

    @property
    def kind(self) -> str:
        return str(self.keys.get("model_type"))

    def wrong(self, what: str, remedy: str) -> InputError:
        return InputError(f"{self.path}: {what}. {remedy}")

    def get(self, name: str) -> Any:
        """The value of a key, or what its absence means; None for null."""
        return self.keys.get(name, DEFAULTS.get(self.kind, {}).get(name))

    def has(self, name: str) -> bool:
        return self.get(name) is not None

    def number(
        self, name: str, default: int | None = None, *, low: int = 1, high: int = MOST
    ) -> int:
        """A whole number from `low` to `high`; the default where there is none."""
        value = self.get(name)
        if value is None:
            if default is None:
                raise self.wrong(
                    f"key {name!r} is missing", f"A {self.kind} model must have it."
                )
            return default
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not low <= value <= high:
            raise self.wrong(
                f"key {name!r} is {value!r:.40}",
                f"Give a whole number from {low} to {high:,}.",
            )
        return value

    @property
    def layers(self) -> int:
        return self.number("num_hidden_layers", high=MOST_LAYERS)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.keys.get(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(f"key {name!r} is {value!r}", "Give true or false.")
        return default if value is None else value


def read_config(
    path: str | Path, *, name: str | None = None, weights: str | None = None
) -> ModelShape:
    """The shape of the model that a `config.json` describes.

    Args:
        path: the file, or the folder that holds it.
        name: for reports; by default what the file says, or its folder.
        weights: format, instead of what the file says about quantisation.

    Raises:
        InputError: for a file that is no JSON object, an unknown architecture, or a key
            that is missing or not as it must be.
    """
    file = Path(path)
    file = file / "config.json" if file.is_dir() else file
    config = _open(file)
    if config.kind not in _EXPERTS:
        raise config.wrong(
            f"architecture {config.kind!r} is not known",
            f"Known are {', '.join(sorted(_EXPERTS))}; others may cache something else "
            "than keys and values.",
        )
    layers, hidden = config.layers, config.number("hidden_size")
    latent, experts = _latent(config), _EXPERTS[config.kind](config)
    heads = config.number("num_attention_heads")
    dense = experts is None or experts.layers < layers
    width = "intermediate_size"
    if config.kind == "llama4_text":  # where that is the width of an expert
        width = "intermediate_size_mlp"
    return ModelShape(
        name or _name(config, file),
        layers=layers,
        hidden=hidden,
        query_heads=heads,
        kv_heads=config.number("num_key_value_heads", heads),
        head_size=latent.nope if latent else config.number("head_dim", hidden // heads),
        mlp=config.number(width) if dense else 0,
        vocabulary=config.number("vocab_size"),
        tied=config.flag("tie_word_embeddings", config.kind in TIED),
        latent=latent,
        experts=experts,
        windows=_windows(config, layers),
        weights=weights or _weights(config),
        source=str(file),
    )


def _open(file: Path) -> _Config:
    try:
        whole = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # of text, JSON or numbers
        raise InputError(f"{file}: {error}; give a model's config.json.") from None
    if not isinstance(whole, dict):
        raise InputError(f"{file}: no JSON object; give a model's config.json.")
    keys = whole.get("text_config", whole)  # the language part of a multimodal model
    if not isinstance(keys, dict):
        raise InputError(f"{file}: key 'text_config' is no object; give a config.json.")
    return _Config(file, keys, whole)


def _name(config: _Config, file: Path) -> str:
    told = config.whole.get("_name_or_path")
    return str(told) if told else file.resolve().parent.name


def _latent(config: _Config) -> Latent | None:
    if config.kind not in LATENT:
        return None
    return Latent(
        kv_rank=config.number("kv_lora_rank"),
        rope=config.number("qk_rope_head_dim"),
        nope=config.number("qk_nope_head_dim"),
        value=config.number("v_head_dim"),
        query_rank=config.number("q_lora_rank", 0),
    )


def _windows(config: _Config, layers: int) -> tuple[int, ...]:
    """One window a layer, 0 = everything; () where no layer has one."""
    slides = _sliding_layers(config, layers)
    key = "attention_chunk_size" if config.kind == "llama4_text" else "sliding_window"
    used = config.flag("use_sliding_window", config.kind not in SWITCHED)
    if not used or not config.has(key) or not any(slides):
        return ()
    window = config.number(key)
    return tuple(window if slide else 0 for slide in slides)


def _sliding_layers(config: _Config, layers: int) -> list[bool]:
    if config.has("layer_types"):
        return _by_types(config, layers)
    if config.kind == "llama4_text":
        rotated = config.keys.get("no_rope_layers") or []
        if isinstance(rotated, list) and len(rotated) == layers:
            return [bool(layer) for layer in rotated]  # 1: rotated, and in chunks
        return [(layer + 1) % LLAMA_4_PERIOD != 0 for layer in range(layers)]
    if config.kind in WINDOW_PERIOD:
        period = config.number("sliding_window_pattern", WINDOW_PERIOD[config.kind])
        return [(layer + 1) % period != 0 for layer in range(layers)]
    first = config.number("max_window_layers", 0, low=0)
    return [layer >= first for layer in range(layers)]


def _by_types(config: _Config, layers: int) -> list[bool]:
    types = config.keys["layer_types"]
    if not isinstance(types, list) or len(types) != layers:
        raise config.wrong(
            f"key 'layer_types' is no list of {layers}", "Give one type a layer."
        )
    for kind in types:
        if kind not in FULL + SLIDING:
            raise config.wrong(
                f"key 'layer_types' has {kind!r}",
                "Such layers keep no keys and values of tokens; they are not modelled.",
            )
    return [kind in SLIDING for kind in types]


def _weights(config: _Config) -> str:
    quantised = config.keys.get("quantization_config")
    quantised = quantised or config.whole.get("quantization_config")
    beside = config.path.parent / "hf_quant_config.json"  # of NVIDIA's ModelOpt
    if not quantised and beside.exists():
        raise config.wrong(f"{beside.name} beside it quantises the weights", REMEDY)
    if not quantised:
        dtype = config.keys.get("torch_dtype") or config.keys.get("dtype")
        return OF_DTYPE.get(str(dtype).removeprefix("torch."), "bf16")
    told = quantised if isinstance(quantised, dict) else {}
    method = (told.get("quant_method"), told.get("bits"))
    known = [name for keys, name in OF_METHOD.items() if keys == method]
    if known:
        return known[0]
    raise config.wrong(
        f"quantisation {method[0]!r} with {method[1]} bits is not known",
        REMEDY,
    )


def _no_experts(config: _Config) -> Experts | None:
    return None


def _every_layer(config: _Config) -> Experts | None:
    """Mixtral, gpt-oss, MiniMax-M2: `intermediate_size` is that of an expert."""
    return Experts(
        count=config.number("num_local_experts"),
        active=config.number("num_experts_per_tok"),
        width=config.number("intermediate_size"),
        layers=config.layers,
    )


def _after_dense(config: _Config) -> Experts | None:
    """DeepSeek, Kimi, GLM 4.5: some dense layers come first."""
    width = config.number("moe_intermediate_size")
    dense = config.number("first_k_dense_replace", 0, low=0)
    return Experts(
        count=config.number("n_routed_experts"),
        active=config.number("num_experts_per_tok"),
        width=width,
        layers=config.layers - dense,
        shared_width=width * config.number("n_shared_experts", 0, low=0),
    )


def _sparse_steps(config: _Config) -> Experts | None:
    """Qwen: every so many layers, but not those that are listed as dense."""
    step = config.number("decoder_sparse_step", 1)
    dense = config.keys.get("mlp_only_layers") or []
    if not isinstance(dense, list):
        raise config.wrong("key 'mlp_only_layers' is no list", "Give layers' numbers.")
    sparse = [n for n in range(config.layers) if n not in dense and (n + 1) % step == 0]
    # Newer files call them as Mixtral's are called.
    count = "num_experts" if config.has("num_experts") else "num_local_experts"
    return Experts(
        count=config.number(count),
        active=config.number("num_experts_per_tok"),
        width=config.number("moe_intermediate_size"),
        layers=len(sparse),
        shared_width=config.number("shared_expert_intermediate_size", 0, low=0),
    )


def _llama_4(config: _Config) -> Experts | None:
    width, step = config.number("intermediate_size"), "interleave_moe_layer_step"
    return Experts(
        count=config.number("num_local_experts"),
        active=config.number("num_experts_per_tok"),
        width=width,
        layers=config.layers // config.number(step, 1),
        shared_width=width,
    )


DENSE = "llama mistral qwen2 qwen3 gemma2 gemma3_text phi3 glm4 smollm3 olmo2".split()
_EXPERTS: dict[str, Callable[[_Config], Experts | None]] = {
    **dict.fromkeys(DENSE, _no_experts),
    **dict.fromkeys(("mixtral", "gpt_oss", "minimax_m2"), _every_layer),
    **dict.fromkeys((*LATENT, "glm4_moe"), _after_dense),
    **dict.fromkeys(("qwen2_moe", "qwen3_moe"), _sparse_steps),
    "llama4_text": _llama_4,
}
