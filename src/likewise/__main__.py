"""`python -m likewise`: the command line."""

import os
import sys

# Without -P, Python puts the current folder first on the path, where a file could shadow a module.
if not sys.flags.safe_path and sys.path[0] != os.path.dirname(os.path.dirname(os.path.abspath(__file__))):
    del sys.path[0]

from likewise.cli.main import main

main()
