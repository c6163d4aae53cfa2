"""Running several codec frames in one engine step: the part that knows nothing of installing.

Every module here imports only torch and the standard library, takes the runner and the model as
plain arguments, and works on a CPU. ``kstep_shim.multi_frame`` gathers the documented names.
"""
