"""`python -m rlexporter`."""

from rlexporter.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
