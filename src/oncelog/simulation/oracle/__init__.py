"""What the bytes of a log imply, computed as naively as possible (D2: state follows from the log).

Nothing here is shared with the code that it judges: no module of `storage`, `transaction`, `group`,
`coordinator` or `protocol` is imported, and every format is read from its public definition by
`struct`. A mistake would have to be made twice, in two ways, to stay hidden.

`oncelog.simulation.agreement` compares it with what a partition, a coordinator or a folder says.
It is slow, knows no recovery, and expects sound batches. Pure.
"""
