"""Consumer groups: who coordinates, who belongs, what is committed."""
