"""`python -m cleave`: the `cleave` command."""

from cleave.cli import main

raise SystemExit(main())
