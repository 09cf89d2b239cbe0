"""XLA's flags for tests: their programs run for milliseconds and are to be compiled quickly."""

from importlib.metadata import version

OLDER = tuple(map(int, version("jaxlib").split(".")[:2])) < (0, 11)
# XLA ends a process at a flag that it does not know. Its older emitters take less than half the time.
QUICK = "--xla_cpu_use_fusion_emitters=false " * OLDER + "--xla_cpu_parallel_codegen_split_count=1"
