#!/usr/bin/env python3
"""Five AdamW steps in fp32 from the same weights on the same tokens: every loss equals stock PyTorch's within 2e-4 relative,
for single, DDP and tensor parallelism on its side and on ours."""
import json
import pathlib
import subprocess
import sys

from checks import ROOT, Checks, config, export_baseline, workspace


def pytorch(mode, steps):
    script = [str(ROOT / "bench" / "pytorch_baseline.py"), "--model", "tiny", "--mode", mode, "--steps", str(steps), "--batch", "8"]
    head = [sys.executable] if mode == "single" else [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(head + script, capture_output=True, text=True)
    lines = [x for x in done.stdout.splitlines() if x.startswith("{")]
    if not lines:
        sys.exit(f"PyTorch {mode} did not run:\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])["losses"]


def main():
    checks, steps = Checks(), 5
    with workspace() as tmp:
        work = pathlib.Path(tmp)
        export_baseline(work, steps=steps)
        for mode, parallel, micro in (("single", "dp: 1", 8), ("ddp", "dp: 2", 4), ("tp", "tp: 2", 8)):
            want = pytorch(mode, steps)
            got = [row["loss"] for row in checks.train(config(work, 8, micro, parallel, steps), work / mode)]
            checks.expect(len(want) == len(got), f"{mode}: {len(want)} steps")
            for step, (a, b) in enumerate(zip(want, got), 1):
                checks.expect(abs(a - b) <= 2e-4 * a, f"{mode} step {step}: PyTorch {a}, ours {b}")
    checks.finish()


main()
