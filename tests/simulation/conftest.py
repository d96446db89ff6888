from tests.unit.simulation.conftest import _throw_away_the_dead

__all__ = ["_throw_away_the_dead"]
