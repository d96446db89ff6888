"""``oncelog cluster``: work on a cluster as a whole. `entry` is the group."""
