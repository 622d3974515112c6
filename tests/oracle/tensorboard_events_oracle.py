#!/usr/bin/env python3
"""The event files of a run, read by TensorBoard itself, say what metrics.jsonl says."""
import pathlib

from checks import Checks, workspace
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def main():
    checks = Checks()
    with workspace() as tmp:
        run = pathlib.Path(tmp) / "run"
        rows = checks.train("""model: { layers: 1, hidden: 16, heads: 2, seq: 8 }
data: { synthetic: true, validation: 0.2 }
batch: { global: 4 }
parallel: { dp: 2, tp: 2 }
train: { steps: 6, eval_every: 3 }
checkpoint: { every: -1 }
""", run)
        events = EventAccumulator(str(run))
        events.Reload()
        for tag in ("loss", "grad_norm", "lr", "tokens_per_s", "valid_loss"):
            got = [(e.step, e.value) for e in events.Scalars(tag)]
            want = [(row["step"], row[tag]) for row in rows if tag in row]
            checks.expect([s for s, _ in got] == [s for s, _ in want], f"{tag}: steps {got}")
            # Event files hold fp32.
            checks.expect(all(abs(a - b) <= 1e-6 * abs(b) for (_, a), (_, b) in zip(got, want)), f"{tag}: values {got} {want}")
        checks.expect(len([row for row in rows if "valid_loss" in row]) == 2, "validation at steps 3 and 6")
    checks.finish()


main()
