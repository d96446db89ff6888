"""``oncelog log``: look into log directories without a broker.

`entry` is the group; each sub-command has a module of its name. `reading` finds the batches of a
`.log` file, damage included, and `survey` builds from them what the other files should say.
"""
