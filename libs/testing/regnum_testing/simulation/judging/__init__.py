"""What must hold of a run: at its end (``judge``), and of the store after each write (``writes``)."""
