"""`perc advise`: text, JSON, and what it refuses."""

import json


def test_a_laptop(perc):
    said = perc("advise", "--gpu", "none", "--users", 2, "--context", 4096)
    assert said.code == 0 and said.err == ""
    assert "llama.cpp: there is no accelerator" in said.words
    assert "--ctx-size 8192" in said.words and "looked up 20" in said.words
    assert "Other engines: vllm:" in said.words


def test_a_trace_and_a_model(perc, tmp_path):
    made = tmp_path / "chat.parquet"
    assert perc("make", "chat", "--requests", 200, "--out", made).code == 0
    words = ("--gpu", "h100", "--model", "llama-3.1-70b", "--ttft", "0.1")
    said = perc("advise", made, *words)
    assert said.code == 0 and "Of the prompt tokens" in said.words
    assert "vllm serve meta-llama/Llama-3.1-70B \\\n" in said.out
    assert "of itself cached" in said.words and "accelerator(s) hold" in said.words
    found = json.loads(perc("advise", made, *words, "--json").out)
    assert found["advice"]["engine"] == "vllm" and found["needs"]["tp"] >= 2
    assert found["worth"]["hits"].keys() == {"lru", "lfu_in_cache", "perc"}


def test_the_command_names_what_a_server_can_load(perc, tmp_path):
    def line(*words):
        said = perc("advise", "--gpu", "h100", *words)
        assert said.code == 0
        return said.out

    config = {
        "model_type": "llama",
        "num_hidden_layers": 2,
        "hidden_size": 128,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "vocab_size": 1000,
    }
    folder = tmp_path / "my model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    assert f"vllm serve '{folder}' \\\n" in line("--config", folder)
    named = line("--config", folder, "--model", "me/mine")
    assert "vllm serve me/mine \\\n" in named
    instruct = "meta-llama/Llama-3.1-8B-Instruct"
    assert f"vllm serve {instruct} \\\n" in line("--model", instruct)
    small = ("--model", "llama-3.1-8b", "--engine")
    assert "--model-path meta-llama/Llama-3.1-8B \\\n" in line(*small, "sglang")
    # Its repositories have no GGUF file: the path is the reader's.
    llama = line(*small, "llama.cpp")
    assert "--model Llama-3.1-8B.gguf" in llama and "-hf" not in llama


def test_flags_change_what_is_advised(perc):
    def engine(*words):
        found = json.loads(perc("advise", "--gpu", "h100", "--json", *words).out)
        return found["advice"]["engine"]

    assert engine() == "vllm"
    assert engine("--shared", "0.5") == "sglang"
    assert engine("--least-latency") == "tensorrt-llm"
    assert engine("--nodes", 2, "--disaggregated") == "dynamo"
    assert engine("--engine", "llama.cpp") == "llama.cpp"
    text = perc("advise", "--gpu", "h100", "--offload", "host", "--host-gib", 7)
    assert "--kv-offloading-size 7 " in text.words


def test_what_is_at_fault_is_said(refused, perc, mooncake):
    assert "--gpu" in refused("advise").words
    assert "no accelerator 'h900'" in refused("advise", "--gpu", "h900").err
    said = refused("advise", "--gpu", "h100", "--model", "lama")
    assert "no model 'lama'" in said.err
    said = refused("advise", mooncake, "--gpu", "h100", "--shared", "0.5")
    assert "give one of them" in said.err
    assert "no tier is called" in refused("advise", "--gpu", "l4", "--offload", "x").err
