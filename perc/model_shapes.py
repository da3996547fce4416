"""Models by name. `source` is the repository on huggingface.co whose `config.json` has
the shape; its model card has the published parameters, unless a paper is named.

In a row: layers, hidden size, query heads, KV heads, head size, MLP, vocabulary. What
has no public source is left out. `tests/test_models.py` counts the parameters from
every shape and compares them with what was published.
"""

from perc.catalogue import index, look_up, squeeze
from perc.models import Experts, Latent, ModelShape

SUFFIXES = ("instruct", "chat", "base", "it", "hf")  # same shape as without


def model(name: str) -> ModelShape:
    """The shape of a model by its name, or by the name of its repository.

    Raises:
        InputError: for an unknown name; it lists near ones.

    Example:
        >>> model("meta-llama/Llama-3.1-8B-Instruct").name
        'llama-3.1-8b'
    """
    short = squeeze(name)
    for suffix in SUFFIXES:
        if short not in _INDEX and short.removesuffix(suffix) in _INDEX:
            return _INDEX[short.removesuffix(suffix)]
    names = [shape.name for shape in MODELS]
    return look_up(name, _INDEX, names, what="model")


# DeepSeek-AI 2024, "DeepSeek-V2", section 3.1.2 and, of the lite model, appendix B.
MLA = Latent(kv_rank=512, rope=64, nope=128, value=128, query_rank=1536)
MLA_LITE = Latent(kv_rank=512, rope=64, nope=128, value=128)
GEMMA_2, GEMMA_3 = (4096, 0), (1024, 1024, 1024, 1024, 1024, 0)
LLAMA_4 = (8192, 8192, 8192, 0)  # chunks of 8,192 tokens, every fourth layer sees all

MODELS = [
    # Llama 2 and 3: parameters from the model cards.
    ModelShape(
        *("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000),
        published=6.74e9,
        source="meta-llama/Llama-2-7b-hf",
    ),
    ModelShape(
        *("llama-2-13b", 40, 5120, 40, 40, 128, 13824, 32000),
        published=13.02e9,
        source="meta-llama/Llama-2-13b-hf",
    ),
    ModelShape(
        *("llama-2-70b", 80, 8192, 64, 8, 128, 28672, 32000),
        published=69.0e9,
        source="meta-llama/Llama-2-70b-hf",
    ),
    ModelShape(
        *("llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256),
        published=8.03e9,
        source="meta-llama/Meta-Llama-3-8B",
    ),
    ModelShape(
        *("llama-3-70b", 80, 8192, 64, 8, 128, 28672, 128256),
        published=70.6e9,
        source="meta-llama/Meta-Llama-3-70B",
    ),
    ModelShape(
        *("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256),
        published=8.03e9,
        source="meta-llama/Llama-3.1-8B",
    ),
    ModelShape(
        *("llama-3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256),
        published=70.6e9,
        source="meta-llama/Llama-3.1-70B",
    ),
    ModelShape(
        *("llama-3.1-405b", 126, 16384, 128, 8, 128, 53248, 128256),
        published=405e9,
        source="meta-llama/Llama-3.1-405B",
    ),
    ModelShape(
        *("llama-3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256),
        tied=True,
        published=1.23e9,
        source="meta-llama/Llama-3.2-1B",
    ),
    ModelShape(
        *("llama-3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256),
        tied=True,
        published=3.21e9,
        source="meta-llama/Llama-3.2-3B",
    ),
    ModelShape(
        *("llama-3.3-70b", 80, 8192, 64, 8, 128, 28672, 128256),
        published=70.6e9,
        source="meta-llama/Llama-3.3-70B-Instruct",
    ),
    # Llama 4: the published counts include a vision encoder of about 0.9e9.
    ModelShape(
        *("llama-4-scout", 48, 5120, 40, 8, 128, 0, 202048),
        experts=Experts(16, 1, 8192, layers=48, shared_width=8192),
        windows=LLAMA_4,
        published=109e9,
        published_active=17e9,
        source="meta-llama/Llama-4-Scout-17B-16E-Instruct",
    ),
    ModelShape(
        *("llama-4-maverick", 48, 5120, 40, 8, 128, 16384, 202048),
        experts=Experts(128, 1, 8192, layers=24, shared_width=8192),
        windows=LLAMA_4,
        published=400e9,
        published_active=17e9,
        source="meta-llama/Llama-4-Maverick-17B-128E-Instruct",
    ),
    # Mistral.
    ModelShape(
        *("mistral-7b-v0.1", 32, 4096, 32, 8, 128, 14336, 32000),
        windows=(4096,),
        published=7.24e9,
        source="mistralai/Mistral-7B-v0.1",
    ),
    ModelShape(
        *("mistral-7b", 32, 4096, 32, 8, 128, 14336, 32768),
        published=7.25e9,
        source="mistralai/Mistral-7B-v0.3",
    ),
    ModelShape(
        *("mistral-nemo-12b", 40, 5120, 32, 8, 128, 14336, 131072),
        published=12.2e9,
        source="mistralai/Mistral-Nemo-Base-2407",
    ),
    ModelShape(
        *("mistral-large-2", 88, 12288, 96, 8, 128, 28672, 32768),
        published=123e9,
        source="mistralai/Mistral-Large-Instruct-2407",
    ),
    ModelShape(
        *("mixtral-8x7b", 32, 4096, 32, 8, 128, 0, 32000),
        experts=Experts(8, 2, 14336, layers=32),
        published=46.7e9,
        published_active=12.9e9,
        source="mistralai/Mixtral-8x7B-v0.1",
    ),
    ModelShape(
        *("mixtral-8x22b", 56, 6144, 48, 8, 128, 0, 32000),
        experts=Experts(8, 2, 16384, layers=56),
        published=141e9,
        published_active=39e9,
        source="mistralai/Mixtral-8x22B-v0.1",
    ),
    # Qwen.
    ModelShape(
        *("qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864, 151936),
        tied=True,
        published=0.49e9,
        source="Qwen/Qwen2.5-0.5B",
    ),
    ModelShape(
        *("qwen2.5-1.5b", 28, 1536, 12, 2, 128, 8960, 151936),
        tied=True,
        published=1.54e9,
        source="Qwen/Qwen2.5-1.5B",
    ),
    ModelShape(
        *("qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064),
        published=7.61e9,
        source="Qwen/Qwen2.5-7B",
    ),
    ModelShape(
        *("qwen2.5-14b", 48, 5120, 40, 8, 128, 13824, 152064),
        published=14.7e9,
        source="Qwen/Qwen2.5-14B",
    ),
    ModelShape(
        *("qwen2.5-32b", 64, 5120, 40, 8, 128, 27648, 152064),
        published=32.5e9,
        source="Qwen/Qwen2.5-32B",
    ),
    ModelShape(
        *("qwen2.5-72b", 80, 8192, 64, 8, 128, 29568, 152064),
        published=72.7e9,
        source="Qwen/Qwen2.5-72B",
    ),
    ModelShape(
        *("qwen3-0.6b", 28, 1024, 16, 8, 128, 3072, 151936),
        tied=True,
        published=0.6e9,
        source="Qwen/Qwen3-0.6B",
    ),
    ModelShape(
        *("qwen3-4b", 36, 2560, 32, 8, 128, 9728, 151936),
        tied=True,
        published=4.0e9,
        source="Qwen/Qwen3-4B",
    ),
    ModelShape(
        *("qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936),
        published=8.2e9,
        source="Qwen/Qwen3-8B",
    ),
    ModelShape(
        *("qwen3-14b", 40, 5120, 40, 8, 128, 17408, 151936),
        published=14.8e9,
        source="Qwen/Qwen3-14B",
    ),
    ModelShape(
        *("qwen3-32b", 64, 5120, 64, 8, 128, 25600, 151936),
        published=32.8e9,
        source="Qwen/Qwen3-32B",
    ),
    ModelShape(
        *("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 0, 151936),
        experts=Experts(128, 8, 768, layers=48),
        published=30.5e9,
        published_active=3.3e9,
        source="Qwen/Qwen3-30B-A3B",
    ),
    ModelShape(
        *("qwen3-235b-a22b", 94, 4096, 64, 4, 128, 0, 151936),
        experts=Experts(128, 8, 1536, layers=94),
        published=235e9,
        published_active=22e9,
        source="Qwen/Qwen3-235B-A22B",
    ),
    ModelShape(
        *("qwen3-coder-480b-a35b", 62, 6144, 96, 8, 128, 0, 151936),
        experts=Experts(160, 8, 2560, layers=62),
        published=480e9,
        published_active=35e9,
        source="Qwen/Qwen3-Coder-480B-A35B-Instruct",
    ),
    # Gemma 2: Gemma Team 2024, tables 1 and 2; Gemma 3: Gemma Team 2025, table 1,
    # the language model without the vision encoder.
    ModelShape(
        *("gemma-2-9b", 42, 3584, 16, 8, 256, 14336, 256000),
        tied=True,
        windows=GEMMA_2,
        published=9.24e9,
        source="google/gemma-2-9b",
    ),
    ModelShape(
        *("gemma-2-27b", 46, 4608, 32, 16, 128, 36864, 256000),
        tied=True,
        windows=GEMMA_2,
        published=27.23e9,
        source="google/gemma-2-27b",
    ),
    ModelShape(
        *("gemma-3-4b", 34, 2560, 8, 4, 256, 10240, 262144),
        tied=True,
        windows=GEMMA_3,
        published=3.88e9,
        source="google/gemma-3-4b-it",
    ),
    ModelShape(
        *("gemma-3-12b", 48, 3840, 16, 8, 256, 15360, 262144),
        tied=True,
        windows=GEMMA_3,
        published=11.77e9,
        source="google/gemma-3-12b-it",
    ),
    ModelShape(
        *("gemma-3-27b", 62, 5376, 32, 16, 128, 21504, 262144),
        tied=True,
        windows=GEMMA_3,
        published=27.01e9,
        source="google/gemma-3-27b-it",
    ),
    # DeepSeek and Kimi, without the layer for multi-token prediction.
    ModelShape(
        *("deepseek-v2", 60, 5120, 128, 128, 128, 12288, 102400),
        latent=MLA,
        experts=Experts(160, 6, 1536, layers=59, shared_width=3072),
        published=236e9,
        published_active=21e9,
        source="deepseek-ai/DeepSeek-V2",
    ),
    ModelShape(
        *("deepseek-v2-lite", 27, 2048, 16, 16, 128, 10944, 102400),
        latent=MLA_LITE,
        experts=Experts(64, 6, 1408, layers=26, shared_width=2816),
        published=15.7e9,
        published_active=2.4e9,
        source="deepseek-ai/DeepSeek-V2-Lite",
    ),
    ModelShape(
        *("deepseek-v3", 61, 7168, 128, 128, 128, 18432, 129280),
        latent=MLA,
        experts=Experts(256, 8, 2048, layers=58, shared_width=2048),
        weights="fp8",
        published=671e9,
        published_active=37e9,
        source="deepseek-ai/DeepSeek-V3",
    ),
    ModelShape(
        *("deepseek-r1", 61, 7168, 128, 128, 128, 18432, 129280),
        latent=MLA,
        experts=Experts(256, 8, 2048, layers=58, shared_width=2048),
        weights="fp8",
        published=671e9,
        published_active=37e9,
        source="deepseek-ai/DeepSeek-R1",
    ),
    ModelShape(
        *("kimi-k2", 61, 7168, 64, 64, 128, 18432, 163840),
        latent=MLA,
        experts=Experts(384, 8, 2048, layers=60, shared_width=2048),
        weights="fp8",
        published=1.04e12,  # Kimi Team 2025, "Kimi K2", table 2; active likewise
        published_active=32.6e9,
        source="moonshotai/Kimi-K2-Instruct",
    ),
    # gpt-oss: OpenAI 2025, "gpt-oss-120b & gpt-oss-20b Model Card", table 1. Its active
    # counts leave the input embedding out.
    ModelShape(
        *("gpt-oss-20b", 24, 2880, 64, 8, 64, 0, 201088),
        experts=Experts(32, 4, 2880, layers=24),
        windows=(128, 0),
        weights="mxfp4",
        published=20.91e9,
        published_active=3.61e9,
        source="openai/gpt-oss-20b",
    ),
    ModelShape(
        *("gpt-oss-120b", 36, 2880, 64, 8, 64, 0, 201088),
        experts=Experts(128, 4, 2880, layers=36),
        windows=(128, 0),
        weights="mxfp4",
        published=116.83e9,
        published_active=5.13e9,
        source="openai/gpt-oss-120b",
    ),
    # Others.
    ModelShape(
        *("glm-4-9b", 40, 4096, 32, 2, 128, 13696, 151552),
        published=9.40e9,
        source="THUDM/glm-4-9b-chat-hf",
    ),
    ModelShape(
        *("glm-4.5", 92, 5120, 96, 8, 128, 12288, 151552),
        experts=Experts(160, 8, 1536, layers=89, shared_width=1536),
        published=355e9,
        published_active=32e9,
        source="zai-org/GLM-4.5",
    ),
    ModelShape(
        *("glm-4.5-air", 46, 4096, 96, 8, 128, 10944, 151552),
        experts=Experts(128, 8, 1408, layers=45, shared_width=1408),
        published=106e9,
        published_active=12e9,
        source="zai-org/GLM-4.5-Air",
    ),
    ModelShape(
        *("minimax-m2", 62, 3072, 48, 8, 128, 0, 200064),
        experts=Experts(256, 8, 1536, layers=62),
        weights="fp8",
        published=230e9,
        published_active=10e9,
        source="MiniMaxAI/MiniMax-M2",
    ),
    ModelShape(
        *("phi-4", 40, 5120, 40, 10, 128, 17920, 100352),
        published=14.7e9,
        source="microsoft/phi-4",
    ),
    ModelShape(
        *("phi-4-mini", 32, 3072, 24, 8, 128, 8192, 200064),
        tied=True,
        published=3.8e9,
        source="microsoft/Phi-4-mini-instruct",
    ),
    ModelShape(
        *("smollm2-135m", 30, 576, 9, 3, 64, 1536, 49152),
        tied=True,
        published=135e6,
        source="HuggingFaceTB/SmolLM2-135M",
    ),
    ModelShape(
        *("smollm2-1.7b", 24, 2048, 32, 32, 64, 8192, 49152),
        tied=True,
        published=1.71e9,
        source="HuggingFaceTB/SmolLM2-1.7B",
    ),
    ModelShape(
        *("olmo-2-7b", 32, 4096, 32, 32, 128, 11008, 100352),
        published=7.3e9,
        source="allenai/OLMo-2-1124-7B",
    ),
]

_INDEX = index((name, shape) for shape in MODELS for name in (shape.name, shape.source))
