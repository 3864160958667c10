"""The dashboards of deploy/grafana as code: what they show is said here; Grafana's own builders make its JSON.

Goals: a dashboard says only what it shows; where things stand and how Grafana wants them said is in one place
(``building``); no query can forget to say which cluster it is about; what Grafana's schema
does not have cannot be made.

``python -m regnum_testing.dashboards`` compares, ``--write`` writes; ``make proto``.
"""
