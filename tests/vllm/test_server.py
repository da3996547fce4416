"""vLLM's server with a policy: clients side by side, hints, a kill, and a new start."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("vllm")

from tests.vllm.tiny import BLOCK, ENVIRONMENT, MODEL, ROOT, traffic  # noqa: E402

START_S = 400  # three processes import vLLM, on a machine that may be busy
CLIENTS = 8
BAD_HINTS = [
    {"perc_hold_s": "soon"},
    {"perc_turn": [1, 2]},
    {"perc_priority": 1e300},
]
OPTIONS = {
    "served-model-name": "tiny",
    "load-format": "dummy",
    "dtype": "float32",
    "seed": 0,
    "block-size": BLOCK,
    "num-gpu-blocks-override": 24,
    "max-model-len": 16 * BLOCK,
    "max-num-seqs": 4,
    "host": "127.0.0.1",
}


class Server:
    """An API server of vLLM and its children, in a process group of their own."""

    def __init__(self, folder, **environment):
        self.folder = folder
        self.port, self.metrics_port = free_port(), free_port()
        self.environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("PERC_")},
            **ENVIRONMENT,
            "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
            "VLLM_PLUGINS": "perc",
            "VLLM_LOGGING_LEVEL": "INFO",
            "PERC_METRICS_PORT": self.metrics_port,
            **environment,
        }
        self.log = folder / "log"
        self.process = None

    def start(self):
        options = {"model": self.folder, "port": self.port, **OPTIONS}
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--enforce-eager", "--enable-prompt-tokens-details"]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end_s = time.monotonic() + START_S
        while time.monotonic() < end_s:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            try:
                return get(f"http://127.0.0.1:{self.port}/health")
            except OSError:
                time.sleep(0.5)
        raise AssertionError(
            f"no answer in {START_S} s: {self.log.read_text()[-4000:]}"
        )

    def kill(self):
        """All processes at once, as when a machine goes down."""
        if self.process is None:
            return
        group, self.process = self.process, None
        os.killpg(group.pid, signal.SIGKILL)
        group.wait()
        end_s = time.monotonic() + 30
        while alive(group.pid):
            assert time.monotonic() < end_s, "children of the server live on"
            time.sleep(0.05)

    def ask(self, prompt, hint=None):
        """The answer's tokens, and how many of the prompt were cached."""
        body = {
            "model": "tiny",
            "prompt": prompt,
            "max_tokens": 4,
            "temperature": 0.0,
            "ignore_eos": True,
            "return_token_ids": True,
            "vllm_xargs": hint or {},
        }
        told = json.loads(
            get(f"http://127.0.0.1:{self.port}/v1/completions", json.dumps(body))
        )
        cached = (told["usage"]["prompt_tokens_details"] or {}).get("cached_tokens", 0)
        return told["choices"][0]["token_ids"], cached

    def ask_together(self, prompts, hints):
        with ThreadPoolExecutor(CLIENTS) as clients:
            return list(clients.map(self.ask, prompts, hints))

    def counts(self):
        """perc's counters by name."""
        page = get(f"http://127.0.0.1:{self.metrics_port}/metrics")
        lines = [line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#"]
        return {name.partition("{")[0]: float(value) for name, value in lines}


def get(url, body=None):
    data = None if body is None else body.encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return answer.read().decode()


def alive(group):
    """Whether any process of the group is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def tiny_model(folder):
    """A folder with the configuration and a tokenizer of one word a token."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    (folder / "config.json").write_text(json.dumps(MODEL))
    words = {f"w{i}": i for i in range(MODEL["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w0"))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="w0", eos_token="w2"
    ).save_pretrained(folder)
    return folder


def hints_of(n):
    """What clients say: sessions, kinds, times to hold, and some that is no hint."""
    found = []
    for i in range(n):
        hint = {"perc_session": f"s{i % 5}", "perc_turn": i // 5 + 1}
        hint["perc_kind"] = "agent" if i % 2 else "chat"
        if i % 4 == 0:
            hint["perc_hold_s"] = 3600
        if i % 7 == 3:
            hint |= BAD_HINTS[i % len(BAD_HINTS)]
        found.append(hint)
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    found = Server(tiny_model(tmp_path_factory.mktemp("model")), PERC_POLICY="perc")
    try:
        yield found
    finally:
        found.kill()


def test_a_server_answers_the_same_whatever_it_is_told_and_after_a_kill(server):
    prompts, _ = traffic(n=40)
    server.start()
    assert "blocks leave by policy perc" in server.log.read_text()
    alone = [server.ask(prompt) for prompt in prompts]
    wanted = [answer for answer, _ in alone]
    assert len({tuple(answer) for answer in wanted}) > 10

    hints = hints_of(len(prompts))
    together = server.ask_together(prompts, hints)
    assert [answer for answer, _ in together] == wanted
    assert sum(cached for _, cached in alone + together) > 0

    counts = server.counts()
    assert counts["perc_requests_total"] == 2 * len(prompts)
    assert counts["perc_evictions_total"] > 100
    assert counts["perc_hints_ignored_total"] == sum(i % 7 == 3 for i in range(40))
    assert counts["perc_failures_total"] == 0

    whole, lost = killed_under_load(server, prompts, hints)
    assert lost and all(answer == wanted[i] for i, answer in whole)

    server.start()
    assert [server.ask(prompt)[0] for prompt in prompts] == wanted
    assert server.counts()["perc_requests_total"] == len(prompts)


def killed_under_load(server, prompts, hints):
    """Answers that came in time, by number, and how many requests were lost."""
    whole, lost = [], []

    def client(i):
        try:
            whole.append((i, server.ask(prompts[i], hints[i])[0]))
        except (OSError, ValueError):  # refused, cut off, or half an answer
            lost.append(i)

    with ThreadPoolExecutor(CLIENTS) as clients:
        asked = [clients.submit(client, i % len(prompts)) for i in range(200)]
        while len(whole) < CLIENTS:
            time.sleep(0.01)
        server.kill()
        for one in asked:
            one.result()
    return whole, lost
