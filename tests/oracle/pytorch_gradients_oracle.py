#!/usr/bin/env python3
"""One step in fp64: the loss, every parameter's gradient and the weights after one AdamW step equal stock PyTorch's within
1e-10, over one rank and over dp 2 x tp 2."""
import pathlib
import sys

import torch
from checks import ROOT, Checks, config, export_baseline, workspace

sys.path.insert(0, str(ROOT / "bench"))
import pytorch_baseline as rival


def read_safetensors(path):
    import json
    import struct
    raw = pathlib.Path(path).read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    types = {"F64": torch.float64, "F32": torch.float32}
    out = {}
    for name, t in json.loads(raw[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = t["data_offsets"]
            out[name] = torch.frombuffer(bytearray(raw[8 + size + begin:8 + size + end]), dtype=types[t["dtype"]]).view(t["shape"])
    return out


def our_name(name):
    if name.startswith("blocks."):
        _, layer, rest = name.split(".", 2)
        return f"model.layers.{layer}.{rival.HF_NAMES[rest.removesuffix('.weight')]}.weight"
    return {"embed.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight", "head.weight": "lm_head.weight"}[name]


def pytorch_step(batch, seq):
    torch.manual_seed(0)
    model = rival.Llama("tiny", seq)
    # The tables in fp64 too: the rival keeps them in fp32.
    model = model.double()
    inv = 1.0 / (10000 ** (torch.arange(0, 32, 2).double() / 32))
    angle = torch.cat([torch.outer(torch.arange(seq).double(), inv)] * 2, -1)
    model.cos, model.sin = angle.cos(), angle.sin()
    tokens = rival.make_tokens("tiny", seq, batch, 5)
    data = torch.stack([tokens[i * seq:i * seq + seq + 1] for i in range(batch)])
    loss = rival.loss_fn(model(data[:, :-1]), data[:, 1:])
    loss.backward()
    gradients = {our_name(n): p.grad.clone() for n, p in model.named_parameters()}
    torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1).step()
    return loss.item(), gradients, {our_name(n): p.detach() for n, p in model.named_parameters()}


def main():
    checks = Checks()
    with workspace() as tmp:
        work = pathlib.Path(tmp)
        export_baseline(work)
        loss, gradients, weights = pytorch_step(8, 256)
        for name, parallel, micro in (("one", "dp: 1", 8), ("dp2-tp2", "dp: 2, tp: 2", 2)):
            run = work / name
            rows = checks.train(config(work, 8, micro, parallel, 1, "fp64", "log: { dump: { steps: [1] } }\n"), run)
            checks.expect(abs(rows[0]["loss"] - loss) <= 1e-10 * loss, f"{name}: loss {rows[0]['loss']!r}, PyTorch {loss!r}")
            for kind, want in (("gradients", gradients), ("parameters", weights)):
                got = read_safetensors(run / "dumps" / "step-1" / f"{kind}.safetensors")
                checks.expect(sorted(got) == sorted(want), f"{name}: {kind} have the same names")
                for key, tensor in want.items():
                    difference = ((got[key] - tensor).norm() / tensor.norm()).item()
                    checks.expect(difference <= 1e-10, f"{name}: {kind} {key} differ by {difference:.2e}")
    checks.finish()


main()
