# SPDX-License-Identifier: Apache-2.0
"""Models, randomly drawn requests, and request logs."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest

from allocbench.workloads import TraceError, read
from allocbench.workloads.generator import settle
from allocbench.workloads.serving import logs, models, requests
from allocbench.workloads.serving.models import MODELS, Model
from allocbench.workloads.serving.requests import Requests
from tests.traces import message_of

AZURE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:46.7000000,0,7
2023-11-16 18:15:49.1805900,879,55
"""
BURST = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45.5,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,API log
"""
BURST_LATER = """\
Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
5,,3.5,ChatGPT,472,18,490,API log
6,a1,2.25,ChatGPT,1087,230,1317,Conversation log
"""
MOONCAKE = """\
{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 27500, "input_length": 520, "output_length": 7, "hash_ids": [0, 9]}
"""
BAILIAN = """\
{"chat_id": 1, "parent_chat_id": -1, "timestamp": 0.5, "input_length": 40, "output_length": 5, \
"type": "text", "turn": 1, "hash_ids": [3, 4, 5]}
{"chat_id": 2, "parent_chat_id": 1, "timestamp": 61, "input_length": 50, "output_length": 7, \
"type": "text", "turn": 2, "hash_ids": [3, 4, 8, 9]}
"""
USAGE = """\
{"id": "a", "created": 1700000000, "usage": {"prompt_tokens": 374, "completion_tokens": 44}}

{"created": 1700000000.5, "usage": {"prompt_tokens": 396, "completion_tokens": 109}}
{"created": 1700000001, "usage": null}
"""
LIST = """\
[{"startTime": "2026-01-02T03:04:05Z", "promptTokens": 374, "outputTokens": 44},
 {"startTime": "2026-01-02T04:04:05.5+01:00", "promptTokens": 396.0, "outputTokens": 109}]
"""
CONVERSATIONS = json.dumps(
    [
        {"id": "a", "conversations": [{"value": n * "x"} for n in (1494, 176, 5)]},
        {"id": "b", "conversations": []},
        {"id": "c", "conversations": [{"value": 791 * "\u00e9"}, {"value": 433 * "y"}]},
    ]
)
LOGS = (AZURE, BURST, BURST_LATER, MOONCAKE, BAILIAN, USAGE, LIST, CONVERSATIONS)


def log(text: str) -> Requests:
    assert logs.is_log(text.encode()[: 1 << 16])
    return logs.read(io.BytesIO(text.encode()))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("llama-3-70b", 70_553_706_496),
        ("mistral-7b", 7_241_732_096),
        ("mixtral-8x7b", 46_702_792_704),
        ("qwen2.5-7b", 7_615_616_512),
        ("qwen2.5-72b", 72_706_203_648),
    ],
)
def test_models_have_the_published_parameter_counts(name: str, parameters: int) -> None:
    whole = dataclasses.replace(MODELS[name], tensor_parallel=1)
    assert whole.weight_bytes == 2 * parameters
    shared = dataclasses.replace(whole, tensor_parallel=4)
    assert (
        parameters / 4 < shared.weight_bytes / 2 < 1.01 * parameters / 4
    )  # norms are replicated on every GPU
    assert dataclasses.replace(whole, dtype_bytes=1).weight_bytes == parameters


def test_keys_and_values_of_a_token() -> None:
    llama = MODELS["llama-3-8b"]
    assert llama.token_bytes * llama.layers == 128 << 10
    many = dataclasses.replace(llama, tensor_parallel=16)  # heads are never split
    assert many.token_bytes == 2 * 128 * 2


def test_a_pass_reads_all_experts_only_when_enough_tokens_go_through_it() -> None:
    mixtral = dataclasses.replace(MODELS["mixtral-8x7b"], tensor_parallel=1)
    few, _ = mixtral.touched(1)
    many, _ = mixtral.touched(1000)
    table = mixtral.vocabulary * mixtral.hidden * 2
    assert many == pytest.approx(mixtral.weight_bytes - table, rel=1e-6)
    experts = 8 * 3 * 14336 * 4096 * 32 * 2
    assert few == pytest.approx(many - experts * 6 / 8, rel=1e-6)
    assert mixtral.touched(10)[1] == 10 * mixtral.touched(1)[1]


def test_a_model_is_given_by_name_or_numbers_or_both() -> None:
    def model(**given: str | int) -> Model:
        return models.model_of(settle(models.OPTIONS, given))

    assert model() == MODELS["llama-3-8b"]
    assert model(model="qwen2.5-7b", layers="2").layers == 2
    assert model(model="qwen2.5-7b", layers="2").qkv_bias == 1
    numbers = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16}
    error_line = message_of(lambda: model(model="custom", **numbers))
    assert error_line == "model=custom needs ffn, vocabulary"
    assert model(model="custom", **numbers, ffn=96, vocabulary=100) == Model(
        2, 64, 4, 2, 16, 96, 100
    )


def test_drawn_requests_follow_their_distributions() -> None:
    stated = {"count": 20_000, "rate": 5.0, "prompt": 500, "output": 100, "longest": 10**6}
    for burstiness in (0.5, 1.0, 3.0):
        drawn = requests.RandomRequests(
            **settle(requests.OPTIONS, stated | {"burstiness": burstiness})
        ).draw()
        gaps = np.diff(drawn.arrival)
        assert drawn.arrival[0] == 0
        assert gaps.mean() == pytest.approx(1 / 5, rel=0.1)
        assert gaps.std() / gaps.mean() == pytest.approx(burstiness, rel=0.1)
    assert np.median(drawn.prompt) == pytest.approx(500, rel=0.05)
    assert np.median(drawn.output) == pytest.approx(100, rel=0.05)
    assert np.log(drawn.prompt).std() == pytest.approx(0.9, rel=0.05)
    capped = requests.RandomRequests(
        **settle(requests.OPTIONS, {"longest": 600, "prompt_spread": 0})
    ).draw()
    assert set(capped.prompt.tolist()) == {600}
    assert capped.output.max() <= 600


def test_common_prefixes_are_chosen_by_zipfs_law() -> None:
    stated = {"count": 20_000, "prefixes": 4, "prefix_tokens": 1024}
    drawn = requests.RandomRequests(**settle(requests.OPTIONS, stated)).draw()
    assert drawn.prefix is not None
    assert {tuple(prefix) for prefix in drawn.prefix} == {(0, 1), (2, 3), (4, 5), (6, 7)}
    shares = np.bincount([prefix[0] // 2 for prefix in drawn.prefix]) / 20_000
    expected = np.array([1, 1 / 2, 1 / 3, 1 / 4])
    np.testing.assert_allclose(shares, expected / expected.sum(), rtol=0.05)
    assert drawn.prompt.min() > 1024


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("TIMESTAMP", "\ufeffTimestamp"),
        ("TIMESTAMP", "\n\nTIMESTAMP"),
        (",", ";"),
        (",", ", "),
        (",396,109", ",396.0,109.00"),
        ("\n", "\r\n\r\n"),
        ("50.9951690", "50.9951690Z"),
        ("18:15:50.9951690", "20:45:50.9951690+02:30"),
        ("18:15:50.9951690", "13:15:50.9951690-05:00"),
    ],
)
def test_a_log_that_another_program_exported(old: str, new: str) -> None:
    assert old in AZURE
    found, expected = log(AZURE.replace(old, new)), log(AZURE)
    assert found.arrival.tolist() == expected.arrival.tolist()
    assert found.prompt.tolist() == expected.prompt.tolist()
    assert found.output.tolist() == expected.output.tolist()


@pytest.mark.parametrize(
    ("text", "arrival", "rule"),
    [
        (
            ",arrived_at,num_prefill_tokens,num_decode_tokens,pd_ratio\n0,2.0,374,44,8.5\n1,2.5,396,109,3.6\n",
            *(0.5, "arrived_at (in seconds), prompt tokens from num_prefill_tokens, answer"),
        ),
        (
            "timestamp,prompt_tokens,completion_tokens\n1700000000.0,374,44\n1700000000.5,396,109\n",
            *(0.5, "timestamp (in seconds)"),
        ),
        (
            "timestamp,prompt_tokens,completion_tokens\n1700000000000,374,44\n1700000000500,396,109\n",
            *(0.5, "timestamp (in milliseconds)"),
        ),
        (
            "id;Arrival Time (ms);Input Tokens;Output Tokens\na;1000;374;44\nb;1500;396;109\n",
            *(0.5, "arrival time (ms) (in milliseconds)"),
        ),
        (
            "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size\n"
            "0,2,0,0.0,1,374,44\n1,2,0,0.5,1,396,109\n",
            *(0.5, "prompt tokens from prompt_size, answer tokens from token_size"),
        ),
        (
            'created_at,model,input_tokens,output_tokens\n"2024-03-01 10:00:00.5+00:00",m,374,44\n'
            '"2024-03-01T11:00:01.0+01:00",m,396,109\n',
            *(0.5, "created_at (a date and time)"),
        ),
        (
            "prompt_tokens;completion_tokens\n374;44\n396;109\n",
            *(0, "no times of arrival: all arrive at once, prompt tokens from prompt_tokens"),
        ),
        (USAGE, *(0.5, "answer tokens from usage.completion_tokens")),
        (LIST, *(0.5, "arrival from the column startTime (a date and time)")),
        (CONVERSATIONS, *(0, "tokens are estimated: one for 4 bytes of text")),
        (
            '{"arrival_time_ms": 500, "input_len": 374, "output_len": 44}\n'
            '{"arrival_time_ms": 1000, "input_len": 396, "output_len": 109}',
            *(0.5, "arrival_time_ms (in milliseconds)"),
        ),
        (
            '{"date": "x", "input_lens": [374, 396], "output_lens": [44, 109], "ttfts": [0.1]}',
            *(0, "no times of arrival: all arrive at once"),
        ),
        (
            '{"input_lens": [374, 396], "output_lens": [44, 109], "start_times": [7.0, 7.5]}',
            *(0.5, "arrival from start_times"),
        ),
    ],
)
def test_columns_are_recognized_by_their_meaning(
    text: str, arrival: float, rule: str, tmp_path: Path
) -> None:
    found = log(text)
    assert found.arrival.tolist() == [0, arrival]
    assert (found.prompt.tolist(), found.output.tolist()) == ([374, 396], [44, 109])
    assert rule in found.rule
    (tmp_path / "log").write_text(text)
    trace = read(tmp_path / "log", model="llama-3-8b")
    assert trace.provenance.extra["note"] == found.rule


def test_prompts_of_bailian_share_pages_of_16_tokens(tmp_path: Path) -> None:
    path = tmp_path / "requests.jsonl"
    path.write_text(BAILIAN)
    assert read(path, kv="paged").provenance.extra["served"]["prefix_tokens"] == 32
    assert read(path, kv="paged", page=8).provenance.extra["served"]["prefix_tokens"] == 32
    message = message_of(lambda: read(path, kv="paged", page=32))
    assert "page=32 does not divide 16, the number of tokens of each prefix id" in message


def test_a_log_can_be_shortened_and_sped_up() -> None:
    some = log(MOONCAKE).first(1, 1.0)
    assert (len(some), some.prefix) == (1, [[0, 1, 2]])
    assert log(MOONCAKE).first(0, 2.0).arrival.tolist() == [0, 13.75]


def test_a_log_is_detected_by_its_content_and_takes_options(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    for text in (AZURE, BURST, MOONCAKE, BAILIAN):
        path.write_text(text)
        trace = read(path, model="qwen2.5-7b", kv="paged")
        assert (trace.name, trace.provenance.kind) == (
            "requests:model=qwen2.5-7b,kv=paged",
            "serving",
        )
        assert trace.provenance.source == "requests.parquet"
    with pytest.raises(TraceError, match="is request log, which has no option 'seed'"):
        read(path, seed=1)
    with pytest.raises(TraceError, match="model=gpt-5 must be one of llama-3-8b, "):
        read(path, model="gpt-5")


def test_the_lists_of_a_benchmark_have_equal_lengths() -> None:
    results = {"input_lens": [10, 20], "output_lens": [5]}
    assert "not two lists of equal length" in message_of(lambda: log(json.dumps(results)))
