"""Long runs of the simulation by hand.

python tests/simulation/run.py --seeds 10000 --first 0       many seeds; the first that fails ends it
python tests/simulation/run.py --first 4711 --seeds 1 --trace       one seed, with its whole history
python tests/simulation/run.py --fault ack_before_commit --seeds 200       a planted fault: which seed finds it
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parent))

from sim_config import draw_storm
from sim_faults import FAULTS
from sim_run import Simulation, SimulationFailed
from sim_sqlite import SqliteTables
from sim_tables import MemoryTables


def main() -> int:
    """Run; exit with 1 when a seed failed (without a planted fault) or none did (with one)."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--first", type=int, default=0, help="the first one (default: 0)")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="plant this fault")
    parser.add_argument("--storms", action="store_true", help="storms of submissions by several projects")
    parser.add_argument("--sqlite", action="store_true", help="over the real store, in memory (slower)")
    parser.add_argument("--trace", action="store_true", help="print the whole history")
    parser.add_argument("--keep-going", action="store_true", help="go on after a seed that failed")
    options = parser.parse_args()
    begin, failed = time.monotonic(), 0
    for seed in range(options.first, options.first + options.seeds):
        tables = SqliteTables() if options.sqlite else MemoryTables()
        is_storm = options.storms or (options.fault and FAULTS[options.fault].storm)
        config = draw_storm(Random(seed)) if is_storm else None
        simulation = Simulation(seed, config, tables=tables, keep_trace=options.trace)
        try:
            if options.fault:
                with FAULTS[options.fault].plant():
                    simulation.play()
            else:
                simulation.play()
        except SimulationFailed as error:
            failed += 1
            print(error)
            if options.fault or not options.keep_going:
                break
        if options.trace:
            print(*simulation.world.history, sep="\n")
        if sys.stderr.isatty() or seed % 100 == 99:
            print(f"seed {seed}: {failed} failed, {time.monotonic() - begin:.0f} s", file=sys.stderr)
    if options.fault:
        print(f"{options.fault}: {'found' if failed else 'NOT FOUND'}")
        return 0 if failed else 1
    print(f"{options.seeds} seeds from {options.first}, {failed} failed, {time.monotonic() - begin:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
