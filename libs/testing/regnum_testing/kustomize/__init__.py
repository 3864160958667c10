"""What `kubectl kustomize` makes of a folder, for tests: CI has no kubectl.

The part of kustomize that deploy/k8s uses, in kustomize's own order; whatever else a kustomization says is an error, so
that nothing is silently left out. Where a kubectl is named (``KUBECTL``), a test holds that both make the same objects.
"""

from regnum_testing.kustomize.build import KustomizeError, build

__all__ = ["KustomizeError", "build"]
