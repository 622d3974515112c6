"""What the oracle tests share: running the program, and saying what passed."""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Checks:
    """Counts named checks; prints a line for each and the sum at the end."""

    def __init__(self):
        self.passed = self.failed = 0
        parser = argparse.ArgumentParser()
        parser.add_argument("--trireme", default=str(ROOT / "build" / "trireme"))
        self.trireme = parser.parse_args().trireme

    def expect(self, good, name):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"FAILED {name}")

    def train(self, config, run, *words):
        """Trains; returns the lines of metrics.jsonl."""
        path = pathlib.Path(run).with_suffix(".yaml")
        path.write_text(config)
        done = subprocess.run([self.trireme, "train", str(path), "--run-dir", str(run), *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"trireme train failed ({done.returncode}):\n{done.stdout}{done.stderr}")
        return [json.loads(x) for x in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines()]

    def finish(self):
        print(f"{self.passed} passed, {self.failed} failed")
        sys.exit(1 if self.failed else 0)


def workspace():
    return tempfile.TemporaryDirectory(prefix="trireme-oracle-")


def export_baseline(folder, model="tiny", batch=8, steps=5):
    """The rival's initial weights and tokens (bench/pytorch_baseline.py --export)."""
    subprocess.run([sys.executable, str(ROOT / "bench" / "pytorch_baseline.py"), "--model", model, "--steps", str(steps), "--batch", str(batch),
                    "--export", str(folder)], check=True)


def config(folder, batch, micro, parallel, steps, compute="fp32", more=""):
    """The rival's training in our words."""
    return f"""seed: 1
model: {{ from: {folder} }}
data: {{ tokens: {folder}/tokens, shuffle: false, validation: 0 }}
batch: {{ global: {batch}, micro: {micro} }}
parallel: {{ {parallel} }}
optimizer: {{ name: adamw, lr: 3.0e-4, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1, no_decay: [], clip: 0, schedule: constant }}
precision: {{ compute: {compute} }}
train: {{ steps: {steps} }}
checkpoint: {{ every: -1 }}
{more}"""
