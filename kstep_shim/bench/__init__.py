"""``kstep-shim bench``: time per frame at K=1, stock, and at several K, paired in one run."""
