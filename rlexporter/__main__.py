"""`python -m rlexporter`."""

from rlexporter.commands.main import main

if __name__ == "__main__":
    raise SystemExit(main())
