"""`python -m steptape try train.py ...`"""
import sys

from ._try import main

if sys.argv[1:2] != ["try"]:
    sys.exit("usage: python -m steptape try [--json] [--keep-going] [--calls N] train.py ...; all else: steptape --help")
sys.exit(main(sys.argv[2:]))
