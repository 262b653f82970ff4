"""The demo: real services, a real workload, real kills, and the proof that nothing differs.

`play` is the machinery, also of `make chaos` and of tests/e2e; `load` and its
workloads `bank` and `tpcb` write, `programs` and `killer` start and kill,
`sampler`, `compare` and `audit` look for the smallest difference.
"""

from gauss_cdc_lab.demo.play import RATES, WORKLOADS, DemoPlan, PlayFailed, demo, play

__all__ = ["RATES", "WORKLOADS", "DemoPlan", "PlayFailed", "demo", "play"]
