"""Tests of the simulation as a whole: planted bugs that it has to find."""
