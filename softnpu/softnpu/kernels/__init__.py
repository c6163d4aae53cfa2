"""The kernels, as plain functions on tensors.

A row of a result depends on its own row of the arguments and on nothing else. Vector
instructions, blocking and tails make that false for most batched torch ops on a CPU, bit for bit,
so the kernels work row by row.
"""
