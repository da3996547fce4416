"""What clients say about a request of vLLM, read from requests that look like them."""

from types import SimpleNamespace

import pytest

from perc.bridges.vllm_requests import Reader


def request(args=None, **own):
    return SimpleNamespace(
        **{
            "sampling_params": SimpleNamespace(extra_args=args),
            "session_id": None,
            "cache_salt": None,
            "priority": 2,
            "num_prompt_tokens": 10,
            "num_output_tokens": 3,
            "is_finished": lambda: True,
            **own,
        }
    )


@pytest.mark.parametrize("args", [None, {}, {"perc_kind": None}])
def test_a_client_that_says_nothing_is_known_by_the_request_alone(args):
    facts = Reader().facts(request(args))
    assert facts.session is None and facts.turn is None and facts.hold_s == 0
    assert (facts.kind, facts.kind_name, facts.priority) == (0, "", -2)
    assert (facts.input_tokens, facts.output_tokens) == (10, 3)
    assert not facts.preempted
    assert Reader().facts(request(args, is_finished=lambda: False)).preempted


@pytest.mark.parametrize("args", [None, {"perc_turn": 3}])
@pytest.mark.parametrize(
    ("salt", "session"),
    [("session:a17", "a17"), ("tenant-9", None), ("session:", ""), (None, None)],
)
def test_a_salt_names_a_session_where_it_says_so(args, salt, session):
    assert Reader().facts(request(args, cache_salt=salt)).session == session


def test_what_the_client_says_goes_before_a_salt():
    salted = {"cache_salt": "session:c", "session_id": "b"}
    assert Reader().facts(request({"perc_session": "a"}, **salted)).session == "a"
    assert Reader().facts(request(None, **salted)).session == "b"
    assert Reader().facts(request({"perc_turn": 1}, **salted)).session == "b"


def test_a_hint_that_is_no_number_is_passed_over_and_counted():
    reader = Reader()
    facts = reader.facts(request({"perc_hold_s": "soon", "perc_turn": "4"}))
    assert (facts.hold_s, facts.turn, reader.ignored) == (0.0, 4, 1)
