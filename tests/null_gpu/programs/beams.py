"""What transformers generates: beams, Whisper's parts, samples up to an end token, as in GRPO."""

import json

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

sizes = {"vocab_size": 99, "d_model": 32}
tokens = {"pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 4}
layers = {
    f"{part}_{name}": number
    for part in ("encoder", "decoder")
    for name, number in (("layers", 1), ("attention_heads", 2), ("ffn_dim", 64))
}
t5 = T5ForConditionalGeneration(
    T5Config(**sizes, d_ff=64, num_layers=1, num_heads=2, d_kv=16, decoder_start_token_id=0)
)
whisper = WhisperForConditionalGeneration(
    WhisperConfig(**sizes, **tokens, **layers, suppress_tokens=None, begin_suppress_tokens=None)
)
ids = torch.randint(5, 99, (2, 8)).cuda()
found = t5.cuda().generate(ids, num_beams=3, num_return_sequences=2, max_new_tokens=9)
sound = torch.randn(2, 80, 3000, device="cuda")
heard = [
    whisper.cuda().generate(sound, num_beams=beams, max_new_tokens=7).shape for beams in (1, 2)
]

tokens, prompt, end = 8, 5, 1
gpt = GPT2LMHeadModel(
    GPT2Config(vocab_size=2000, n_embd=32, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=end)
)
prompts = torch.randint(3, 2000, (4, prompt)).cuda()
lengths = {}
for sampled in (True, False):
    made = gpt.cuda().generate(
        prompts, attention_mask=torch.ones_like(prompts), do_sample=sampled, max_new_tokens=tokens
    )[:, prompt:]
    ended = made == end
    last = torch.full((4,), tokens, device="cuda")
    last[ended.any(1)] = ended.int().argmax(1)[ended.any(1)]
    mask = torch.arange(tokens, device="cuda")[None] <= last[:, None]
    rows = [row[kept].tolist() for row, kept in zip(made.cpu(), mask.cpu(), strict=True)]
    lengths[str(sampled)] = [*map(len, rows)], len({*map(tuple, rows)})
print(json.dumps({"found": found.shape, "heard": heard, "completions": lengths}))
