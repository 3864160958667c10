"""A judge of Regnum on a real Kubernetes: it installs an overlay, hurts its pods under load and says what became of it.

``api`` and ``cluster`` speak with Kubernetes through kubectl; ``pods/`` has the two programs that run inside; ``steps``
hurts; ``observed`` and ``verdict`` are pure; ``report`` and ``timeline`` show. Begin with ``__main__``.
"""
