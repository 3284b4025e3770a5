"""Open the course: python3 start.py. Run its tests: python3 start.py test. More: python3 start.py --help."""
# ruff: noqa: ANN201, UP031
# This file must parse on every Python, Python 2 too: that is how an old one can be told what is needed.

import os
import sys

NEEDED = (3, 11)


def main():
    """Hand over to tools/launcher.py where this Python is new enough."""
    if sys.version_info[:2] < NEEDED:
        return "This course needs Python %d.%d or newer, and this is Python %d.%d.%d: %s" % (
            NEEDED + tuple(sys.version_info[:3]) + ("install a newer Python and run start.py with that one.",)
        )
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    from tools import launcher

    return launcher.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
