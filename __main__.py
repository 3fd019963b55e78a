"""`path/to/venv/python -m zdoctor`: the doctor of that interpreter's environment."""

from .doctor.cli import main

raise SystemExit(main())
