"""Changes of settings and quotas in the words of the wire, for whoever carries them out: controller or broker."""
