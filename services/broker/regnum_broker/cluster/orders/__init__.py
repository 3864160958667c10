"""The controller's orders: what they say is judged, recorded, and then done, one message after another."""
