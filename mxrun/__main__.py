"""`python -m mxrun`."""

from mxrun.cli import main

if __name__ == "__main__":
    main()
