"""Hugging Face's transformers: Trainer and generate(), models from their configurations."""

import json
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

config = GPT2Config(
    n_layer=2, n_embd=128, n_head=4, vocab_size=1000, n_positions=256, eos_token_id=9
)
model = GPT2LMHeadModel(config)
data = [
    {"input_ids": torch.randint(0, 1000, (128,)), "labels": torch.randint(0, 1000, (128,))}
    for _ in range(32)
]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, per_device_train_batch_size=4, max_steps=4, report_to=[], bf16=True, save_steps=4
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
seen = {"steps": trainer.state.global_step}
prompt = torch.randint(0, 1000, (2, 8), device="cuda")
options = {"pad_token_id": 0, "eos_token_id": 9}
seen["generated"] = list(model.generate(prompt, max_new_tokens=20, do_sample=True, **options).shape)
seen["stopped"] = list(model.generate(prompt, max_length=20, **options).shape)
calls, attention = [], torch.nn.functional.scaled_dot_product_attention
model.register_forward_hook(lambda *_: calls.append(None))
seen["searched"] = list(model.generate(prompt, max_new_tokens=5, num_beams=3, **options).shape)
seen["searches"] = len(calls)


def watched(*tensors, attn_mask=None, **given):
    masked.append(attn_mask is not None)
    return attention(*tensors, attn_mask=attn_mask, **given)


def has_mask(mask, called=model):
    masked.clear()
    called(input_ids=prompt, attention_mask=mask)
    return masked[0]


masked = []
torch.nn.functional.scaled_dot_product_attention = watched
model.eval()
with torch.no_grad():
    whole = torch.ones(2, 8, dtype=torch.int64)
    part = whole.clone()
    part[0, 3] = 0
    changed = whole.cuda()
    changed[0, 3] = 0
    seen["masked"] = [has_mask(mask) for mask in (whole, whole.to("cuda"), part.cuda(), changed)]
with torch.inference_mode():
    seen["masked"].append(has_mask(whole.to("cuda").bool()))
with torch.no_grad():
    seen["masked"].append(has_mask(whole.to("cuda"), torch.compile(model, backend="eager")))
print(json.dumps(seen))
