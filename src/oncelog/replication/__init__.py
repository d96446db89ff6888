"""The role of a broker in one partition, chosen when the metadata assigns it.

Pure, with time as an argument. `replica` has what all roles share and those of a lone broker;
`roles` chooses; `leader` (with `progress`) and `follower` are imported with the first partition
that has a second replica. `divergence` says where a follower truncates.
"""
