"""Runs simulations.

python -m tests.simulation --seeds 1-100 --jobs 2 --done /tmp/simulated
python -m tests.simulation --seed 7 --trace
"""

from __future__ import annotations

import sys

from tests.simulation.determinism import insist_on_hash_seed

if __name__ == "__main__":
    insist_on_hash_seed()

from tests.simulation.runner import main

if __name__ == "__main__":
    sys.exit(main())
