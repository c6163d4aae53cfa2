"""One file per patch point: what it is for, how it works, when it can go, and only the wrapper.

The files declare and import nothing heavy; the frame logic is imported when a wrapper first runs,
so that the catalogue can be read (by the doctor, say) without torch.
"""
