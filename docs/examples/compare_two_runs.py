# %% [markdown]
# # Compare two runs
#
# A script (`python docs/examples/compare_two_runs.py RUN RUN`) and a notebook (most editors run the cells below).

# %%
import sys
from pathlib import Path

import milabench

recorded = Path(__file__).resolve().parents[2] / "tests" / "runs"
first, second = sys.argv[1:3] if len(sys.argv) > 2 else (recorded / "system_a", recorded / "system_b")

# %% [markdown]
# ## Load a run
# A result prints as `milabench report` does. In a notebook, a cell that ends in `result` shows it as a page.

# %%
result = milabench.load(first)
print(result)

# %% [markdown]
# ## Its numbers
# `perf` is the geometric mean of the rates of the repeats, `ci95` its interval.

# %%
for bench in result.summary.benchmarks:
    if bench.perf is not None:
        print(f"{bench.bench}: {bench.perf:.4g} {bench.units}, {bench.outcome}")

# %% [markdown]
# ## Compare it with another
# The first run is the baseline; a ratio above 1 is better. Nothing within the margin is called faster or slower.

# %%
comparison = milabench.compare(first, second, margin=0.02)
print(comparison)

# %%
for row in comparison.comparison.rows:
    for contrast in row.contrasts:
        if contrast is not None:
            print(f"{row.bench}: {contrast.verdict}, {contrast.ratio:.3f} times as fast")
