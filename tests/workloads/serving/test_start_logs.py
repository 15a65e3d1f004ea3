# SPDX-License-Identifier: Apache-2.0
"""What servers print when they start, in the words of several versions."""

import pytest

from allocbench.workloads.serving import start_logs
from allocbench.workloads.vocabulary import TraceError

_GIB = 1 << 30
# Lines of vLLM 0.33.0 (its engine and its server are two processes), 0.7.3, and SGLang 0.5.9.
NEWEST = """\
(APIServer pid=1) INFO 11-26 16:29:13 [startup.py:96] non-default args: {'model_tag': 'tiny', \
'max_num_seqs': 64, 'gpu_memory_utilization': 0.8, 'quantization': 'fp8'}
(APIServer pid=1) INFO 11-26 16:29:49 [scheduler.py:310] Chunked prefill is enabled with \
max_num_batched_tokens=8192.
(EngineCore pid=2) INFO 11-26 16:30:17 [core.py:139] Initializing a V1 LLM engine (v0.33.0) with \
config: model='tiny', speculative_config=None, dtype=torch.bfloat16, max_seq_len=4096, \
tensor_parallel_size=2, quantization=fp8, enforce_eager=False, kv_cache_dtype=fp8_e4m3, \
x={'cudagraph_capture_sizes': []}, compilation_config={'cudagraph_capture_sizes': [1, 2, 4, 8]}
(EngineCore pid=2) INFO 11-26 16:30:27 [model_runner.py:428] Model loading took 0.08 GiB memory \
and 4.038586 seconds
(EngineCore pid=2) INFO 11-26 16:30:42 [gpu_worker.py:772] Available KV cache memory: 72.39 GiB
(EngineCore pid=2) INFO 11-26 16:30:42 [kv_cache_utils.py:1147] GPU KV cache size: 18,977,152 \
tokens, Maximum concurrency for 4,096 tokens per request: 4633.09x
(EngineCore pid=2) INFO 11-26 16:30:42 [m.py:1] Graph capturing finished in 3 secs, took 0.40 GiB
(EngineCore pid=2) INFO 11-26 16:30:43 [gpu_worker.py:1066] Actual usage is 0.26 GiB for consumed \
memory (weights + non-torch), 0.2 GiB for peak activation, and 0.0 GiB for CUDAGraph memory.
"""
FIRST = """\
INFO 11-26 [llm_engine.py:234] Initializing a V0 LLM engine (v0.7.3) with config: model='m', \
max_seq_len=8192, tensor_parallel_size=1, kv_cache_dtype=auto, compilation_config=\
{"cudagraph_capture_sizes":[256,8,1],"max_capture_size":256}
INFO 11-26 [model_runner.py:1115] Loading model weights took 14.9595 GB
INFO 11-26 [worker.py:267] the current vLLM instance can use total_gpu_memory (79.18GiB) x \
gpu_memory_utilization (0.90) = 71.26GiB
INFO 11-26 [worker.py:267] model weights take 14.96GiB; non_torch_memory takes 0.16GiB; PyTorch \
activation peak memory takes 1.26GiB; the rest of the memory reserved for KV Cache is 54.89GiB.
INFO 11-26 [executor_base.py:111] # cuda blocks: 28184, # CPU blocks: 2048
INFO 11-26 [model_runner.py:1562] Graph capturing finished in 14 secs, took 0.21 GiB
"""
OTHER = """\
[2026-11-26 17:00:00] server_args=ServerArgs(model_path='tiny', tokenizer_path='tiny', \
kv_cache_dtype='auto', quantization=None, mem_fraction_static=0.83, max_running_requests=None, \
chunked_prefill_size=8192, page_size=1, tp_size=1, disable_cuda_graph=False, \
cuda_graph_bs=[1, 2, 4], x=1)
[2026-11-26 17:00:00] Load weight end. elapsed=1.20 s, type=LlamaForCausalLM, \
dtype=torch.bfloat16, avail mem=77.90 GB, mem usage=0.10 GB.
[2026-11-26 17:00:00] KV Cache is allocated. #tokens: 4000000, K size: 30.50 GB, V size: 30.25 GB
[2026-11-26 17:00:00] Capture cuda graph end. Time elapsed: 5.20 s. mem usage=0.32 GB. avail mem=8
[2026-11-26 17:00:00] max_total_num_tokens=4000000, chunked_prefill_size=8192, \
max_prefill_tokens=16384, max_running_requests=4096, context_len=4096, available_gpu_mem=8.00 GB
"""


def test_a_server_of_two_processes() -> None:
    start = start_logs.read(NEWEST)
    assert (start.engine, start.version, start.model) == ("vLLM", (0, 33, 0), "tiny")
    assert (start.positions, start.tensor_parallel, start.share) == (4096, 2, 0.8)
    assert (start.tokens, start.rows, start.captured) == (8192, 64, (1, 2, 4, 8))
    assert (start.kv_dtype, start.quantization, start.block_tokens) == ("fp8_e4m3", "fp8", None)
    assert (start.weights, start.activations) == (round(0.08 * _GIB), round(0.2 * _GIB))
    assert (start.graphs, start.cache) == (round(0.4 * _GIB), round(72.39 * _GIB))
    assert start.kv_tokens == 18_977_152
    eager = start_logs.read(NEWEST.replace("enforce_eager=False", "enforce_eager=True"))
    assert eager.captured == ()


def test_the_first_engine_prints_blocks() -> None:
    start = start_logs.read(FIRST)
    assert (start.version, start.captured, start.tokens) == ((0, 7, 3), (1, 8, 256), None)
    assert (start.weights, start.activations) == (round(14.9595 * _GIB), round(1.26 * _GIB))
    assert (start.graphs, start.cache) == (round(0.21 * _GIB), round(54.89 * _GIB))
    assert (start.kv_tokens, start.kv_dtype) == (28_184 * 16, "auto")


def test_another_engine() -> None:
    start = start_logs.read(OTHER)
    assert (start.engine, start.version, start.model) == ("SGLang", (), "tiny")
    assert (start.positions, start.share, start.tokens, start.rows) == (4096, 0.83, 8192, None)
    assert (start.captured, start.block_tokens, start.activations) == ((1, 2, 4), 1, None)
    assert (start.weights, start.graphs) == (round(0.1 * _GIB), round(0.32 * _GIB))
    assert (start.cache, start.kv_tokens) == (round(30.5 * _GIB) + round(30.25 * _GIB), 4_000_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("INFO: Application startup complete.", "no line says that vLLM or SGLang starts"),
        (FIRST.partition("INFO 11-26 [executor_base")[0], "vLLM did not print how many tokens"),
        (OTHER.partition("[2026-11-26 17:00:00] max_")[0], "SGLang did not print how many tokens"),
    ],
)
def test_a_start_that_got_not_so_far(text: str, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        start_logs.read(text)
