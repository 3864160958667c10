"""Changes on their way to the controller: sent again until each has a definite answer."""
