"""Attacks on a cluster of real processes, and what the cluster's other clients and its memory have of each.

The cluster (``target``) checks rights, the attackers (``guests``, ``writers``) have a certificate and at most the right
to one topic, a bystander (``bystander``) measures its own acknowledgements in a process of its own, and a watch
(``watch``) the memory of the processes and what leaves an ISR. ``figures`` puts them beside their bounds.
"""
