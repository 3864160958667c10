"""Is what clients saw of a store explained by one order of their operations?

    register        a node as a register with versions: what an operation does to it, and what must be answered
    history         what clients did and saw, and its JSON-lines form
    search          an order of a node's operations that explains all answers, if there is one
    verdict         a whole history judged node by node; what does not fit, in words
    by_hand         histories in few words, for tests
    random_history  histories that are right by construction; ``broken_history`` breaks them in one place
    comparison      our verdict beside that of another judge
    recorder        a session whose operations are written down
    traffic         clients that compete for a few nodes; ``worker`` is a process of them
    nemesis         members of a store that are killed, restarted and paused, from a seed
    targets         the stores it is done to
    campaign        all of it together

``python -m regnum_testing.linearizability`` is the command; see ``--help``.
"""
