"""The subcommands of ``kstep-shim``, one module each; only these modules print."""
