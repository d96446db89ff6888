"""Asks Oncelog and Apache Kafka the same, as users with the same rights, and compares."""

from tests.support.denial.asking import Side, sides
from tests.support.denial.differing import differences
from tests.support.denial.questions import QUESTIONS, Question

__all__ = ["QUESTIONS", "Question", "Side", "differences", "sides"]
