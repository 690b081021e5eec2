"""Programs drawn from a grammar, run as twins: `python -m programs --help`, in this folder's parent."""
