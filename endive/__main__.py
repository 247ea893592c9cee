"""`python -m endive` is `endive`."""

from endive.cli import main

if __name__ == "__main__":
    main()
