"""The agents of the process tests, with programs under benchmate's runner as their children."""

from tests.process.conftest import agent, agents, python

__all__ = ["agent", "agents", "python"]
