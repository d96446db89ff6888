"""`oncelog demo`: the main job on real flights, killed three times, and judged.

Start reading at `run.py`. The Spark program itself, the part a user would write, is `job.py`.
"""
