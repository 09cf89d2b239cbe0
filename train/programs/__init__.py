"""The programs of a run: what XLA makes of them on a device, which need not be on this machine."""
