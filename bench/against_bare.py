#!/usr/bin/env python3
"""All-reduce of `trireme bench comm` beside a bare MPI_Allreduce and a bare c10d Gloo all_reduce, run alternately.

  against_bare.py [--trireme build/trireme] [--ranks 2] [--size 64MiB] [--rounds 5]

Prints the best and median time of each and the median of the paired ratios (below 1: Trireme is faster). Needs mpicc and
mpirun, and a Python with torch (this one) for Gloo.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys, tempfile

MPI = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char** argv) {
  const long n = atol(argv[1]) / 4;
  const int calls = atoi(argv[2]);
  float* x = calloc(n, 4);
  int rank;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int i = -3; i < calls; ++i) {
    double t = MPI_Wtime(), worst;
    MPI_Allreduce(MPI_IN_PLACE, x, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    t = MPI_Wtime() - t;
    MPI_Reduce(&t, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0 && i >= 0) printf("%.9f\n", worst);
  }
  MPI_Finalize();
}
"""
GLOO = r"""
import os, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.set_num_threads(1)
x = torch.zeros(int(sys.argv[1]) // 4)
for i in range(-3, int(sys.argv[2])):
    begin = time.perf_counter(); dist.all_reduce(x); t = torch.tensor(time.perf_counter() - begin)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0 and i >= 0: print(f"{t.item():.9f}")
dist.barrier(); dist.destroy_process_group()
"""


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--trireme", default="build/trireme")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--size", default="64MiB")
    p.add_argument("--rounds", type=int, default=5)
    a = p.parse_args()
    units = {"KiB": 1024, "MiB": 1 << 20, "GiB": 1 << 30}
    size = int(float(a.size[:-3]) * units[a.size[-3:]])
    calls = max(5, min(2000, int(2e8 // max(size, 1 << 17))))
    work = pathlib.Path(tempfile.mkdtemp())
    (work / "bare.c").write_text(MPI)
    (work / "bare.py").write_text(GLOO)
    subprocess.run(["mpicc", "-O2", "-o", work / "bare", work / "bare.c"], check=True)
    mpirun = ["mpirun", "--bind-to", "none", "--oversubscribe"] + (["--allow-run-as-root"] if os.geteuid() == 0 else []) + ["-np", str(a.ranks)]

    def lines(command):
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return [float(x) for x in out.split() if x.replace(".", "", 1).isdigit()]

    def ours(backend):
        row = json.loads(subprocess.run([a.trireme, "bench", "comm", "--json", "--backend", backend, "--ranks", str(a.ranks), "--collective", "all_reduce",
                                         "--size", a.size, "--seconds", "1"], capture_output=True, text=True, check=True).stdout)["rows"][0]
        return row["min_s"], row["p50_s"]

    bare = {
        "mpi": lambda: lines(mpirun + [str(work / "bare"), str(size), str(calls)]),
        "gloo": lambda: lines([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(a.ranks), str(work / "bare.py"), str(size), str(calls)]),
    }
    print(f"all_reduce of {a.size}, {a.ranks} ranks, ms (best / median of {a.rounds} rounds' medians)")
    for backend in ("mpi", "gloo", "thread"):
        rounds = []
        for _ in range(a.rounds):
            other = bare.get(backend, lambda: [])()
            rounds.append((ours(backend), (min(other), statistics.median(other)) if other else None))
        own = [r[0][1] for r in rounds]
        text = f"{backend:<7} trireme {min(r[0][0] for r in rounds) * 1e3:9.3f} / {statistics.median(own) * 1e3:9.3f}"
        if rounds[0][1]:
            other = [r[1][1] for r in rounds]
            ratio = statistics.median(x / y for x, y in zip(own, other))
            text += f"   bare {min(r[1][0] for r in rounds) * 1e3:9.3f} / {statistics.median(other) * 1e3:9.3f}   ratio {ratio:.2f}"
        print(text, flush=True)


main()
