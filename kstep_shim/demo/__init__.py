"""A Talker stage in miniature on the soft NPU: what `kstep-shim demo` and the tests run.

Everything but the device is real: the released engine core, scheduler, worker, model runner and
Talker model, with a tiny random-weight checkpoint shaped like MiniCPM-o 4.5's.
"""
